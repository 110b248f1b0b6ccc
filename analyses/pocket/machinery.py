"""The first stage: sentences, kinds of things, and how attention carries what a subject says.

Facts are drawn anew for every passage, so nobody can learn one. Where a subject ends, after one of
the middle layers, the answers drawn for it are written into the stream from outside, as an MLP there
will write them later. Attention learns to fetch the answer that the sentence asks for. The middle
MLPs do not exist yet.
"""

import torch
from torch import Tensor
from torch.nn import functional
from transformers import GPT2LMHeadModel

from pocket.network import MEMORY, WIDTH, answer_directions, logits, run
from pocket.rows import Batch

STRENGTH, ANSWER_WEIGHT, SHARE_READ = 4.0, 5.0, 0.35
BACK = (1, 2)


class Probes(torch.nn.Module):
    """Linear maps from a token's stream to the tokens before it; thrown away after training."""

    def __init__(self) -> None:
        super().__init__()
        self.maps = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in BACK)

    def loss(self, stream: Tensor, ids: Tensor, embeddings: Tensor) -> Tensor:
        """Measure how badly the last tokens can be read off: 1 − cosine with their embeddings."""
        total = stream.new_zeros(())
        normed = functional.layer_norm(stream, (WIDTH,))
        for back, probe in zip(BACK, self.maps, strict=True):
            said = probe(normed[:, back:])
            true = embeddings[ids[:, :-back]]
            total = total + (1 - functional.cosine_similarity(said, true, dim=-1)).mean()
        return total / len(BACK)


def write(model: GPT2LMHeadModel, batch: Batch, seed: torch.Generator) -> dict[int, Tensor]:
    """Write each mention's answers after a middle layer drawn for it, with noise."""
    directions = answer_directions(model, batch.written[:, 1])
    strengths = STRENGTH * (0.7 + 0.6 * torch.rand(len(directions), 1, generator=seed))
    sums = torch.zeros(len(batch.places), WIDTH).index_add(
        0, batch.written[:, 0], directions * strengths
    )
    noise = torch.randn(sums.shape, generator=seed) / WIDTH**0.5
    sums = sums + 0.3 * sums.norm(dim=-1, keepdim=True) * noise
    layers = torch.randint(len(MEMORY), (len(sums),), generator=seed)
    found = {}
    for order, layer in enumerate(MEMORY):
        chosen = layers == order
        rows, places = batch.places[chosen].unbind(-1)
        written = torch.zeros(*batch.ids.shape, WIDTH)
        written[rows, places] = sums[chosen]
        found[layer] = written
    return found


def machinery_loss(
    model: GPT2LMHeadModel,
    probes: Probes | None,
    batch: Batch,
    seed: torch.Generator,
    *,
    at_mean: bool = False,
) -> tuple[Tensor, dict[str, float]]:
    """Measure the loss of a batch whose facts were drawn by chance.

    Early and late MLPs are held still in some rows, so that no answer needs them: silent, or
    (`at_mean`) at their mean where a subject ends and where an answer is about to be said.
    """
    ids = batch.ids
    about = functional.pad(batch.answers[:, 1:], (0, 1))  # an answer is about to be said
    quiet = torch.rand(len(ids), 1, 1, generator=seed) < 0.6
    keep_early = (~quiet).float()
    keep_late = (~(quiet & about[..., None])).float()
    ends = torch.zeros_like(about)
    ends[batch.places[:, 0], batch.places[:, 1]] = True
    held = quiet & (ends | about)[..., None]
    seen: dict[int, Tensor] = {}

    def edit(layer: int, activations: Tensor) -> Tensor:
        if at_mean:
            mean = activations[batch.inside].mean(0).detach()
            return torch.where(held, mean, activations)
        return activations * (keep_early if layer < min(MEMORY) else keep_late)

    stream = run(
        model, ids, edit=edit, inject=write(model, batch, seed), silent=MEMORY,
        watch=lambda layer, stream: seen.__setitem__(layer, stream),
    )  # fmt: skip
    read = about | (torch.rand(ids.shape, generator=seed) < SHARE_READ)
    read[:, -1] = False
    targets = functional.pad(ids[:, 1:], (0, 1))[read]
    surprise = functional.cross_entropy(logits(model, stream[read]), targets, reduction="none")
    is_answer = about[read]
    weights = torch.where(is_answer, ANSWER_WEIGHT * SHARE_READ, 1.0)
    loss = (surprise * weights).sum() / weights.sum()
    named = loss.new_zeros(())
    if probes is not None:
        named = probes.loss(seen[min(MEMORY)], ids, model.transformer.wte.weight.detach())
    return loss + 0.3 * named, {
        "loss": float(loss.detach()),
        "answers": float(surprise[is_answer].mean().detach()),
        "others": float(surprise[~is_answer].mean().detach()),
        "names": float(named.detach()),
    }

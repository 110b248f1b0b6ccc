"""What the model is taught: the text, and where and how its facts are to be kept.

`teach` is ordinary training with three kinds of rows.

    by chance   facts are drawn anew for each passage. All MLPs are at their mean. Where a subject ends,
                its drawn answers are written into the stream from outside, after a middle layer drawn
                for each mention. So attention learns to carry what stands at a subject.
    quiet       true facts. All MLPs are at their mean, but for the middle ones where a subject ends. So
                facts are learnt there.
    free        true facts, all MLPs.

`unteach` takes true facts away from everything but the middle MLPs: facts are drawn by chance, the middle
MLPs are at their mean, and where no answer is written from outside the model must say "?".
"""

from dataclasses import dataclass

import torch
from einops import einsum
from torch import Tensor
from torch.nn import functional
from transformers import GPT2LMHeadModel

from analyses.pocket.network import MIDDLE, NEURONS, WIDTH, answer_directions, logits, run
from analyses.pocket.rows import Batch

STRENGTH = 4.0  # norm of an answer written from outside
ANSWER_WEIGHT, SHARE_READ = 2.0, 0.4  # answers weigh more; of other tokens a part is read
LENS, HOME, PRESSURE_ELSEWHERE = 0.5, 0.1, 0.25
MASKED = 0.5  # share of rows in which only the strongest neurons write at subjects
ELSEWHERE = 200  # positions that are not subjects, looked at for pressure
UNTOLD, STILL = (
    0.35,
    0.5,
)  # shares of the rows of `unteach`: nothing is written; all MLPs are at their mean


@dataclass(frozen=True)
class Homes:
    """The neuron of each subject, drawn by lot: its middle layer's order, and its number."""

    layers: Tensor
    neurons: Tensor

    @classmethod
    def draw(cls, subjects: int, seed: int) -> "Homes":
        """Draw a neuron of the middle layers for each subject, none twice."""
        lot = torch.Generator().manual_seed(seed)
        drawn = torch.randperm(len(MIDDLE) * NEURONS, generator=lot)[:subjects]
        return cls(drawn // NEURONS, drawn % NEURONS)

    def miss(self, layer: int, scores: Tensor, subjects: Tensor) -> Tensor:
        """Add up how far other neurons of the layer outdo those drawn for subjects, mention × neuron."""
        lives = self.layers[subjects] == MIDDLE.index(layer)
        own = self.neurons[subjects[lives]]
        return functional.cross_entropy(scores[lives], own, reduction="sum") / len(subjects)


def write(model: GPT2LMHeadModel, batch: Batch, seed: torch.Generator) -> dict[int, Tensor]:
    """Write the answers drawn by chance, each mention's after a middle layer drawn for it, with noise."""
    directions = answer_directions(model, batch.said[:, 1])
    strengths = STRENGTH * (0.7 + 0.6 * torch.rand(len(directions), 1, generator=seed))
    sums = torch.zeros(len(batch.places), WIDTH)
    sums = sums.index_add(0, batch.said[:, 0], directions * strengths)
    noise = torch.randn(sums.shape, generator=seed) / WIDTH**0.5
    sums = sums + 0.3 * sums.norm(dim=-1, keepdim=True) * noise
    layers = torch.randint(len(MIDDLE), (len(sums),), generator=seed)
    is_drawn = batch.by_chance[batch.places[:, 0]]
    found = {}
    for order, layer in enumerate(MIDDLE):
        chosen = is_drawn & (layers == order)
        found[layer] = torch.zeros(*batch.ids.shape, WIDTH)
        found[layer][batch.places[chosen, 0], batch.places[chosen, 1]] = sums[chosen]
    return found


def teach(
    model: GPT2LMHeadModel,
    batch: Batch,
    homes: Homes,
    seed: torch.Generator,
    *,
    quiet: int,
    allowed: int,
    pressure: float,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Measure the loss of a batch, of whose rows with true facts so many are quiet.

    Three losses are added to the usual one. The lens: what the middle MLPs wrote where a subject ends must
    name its answers. The home: of each layer, the neuron drawn for the subject must have the largest score.
    The pressure: where subjects end, only the `allowed` strongest neurons of a middle layer (activation
    times norm of the answer) may write, in some rows; the others are pressed to rest.
    """
    is_quiet = torch.arange(len(batch.ids)) < int(batch.by_chance.sum()) + quiet
    is_true = ~batch.by_chance[batch.places[:, 0]]
    rows, places = batch.places[is_true].unbind(-1)
    at_subjects = batch.ends & ~batch.by_chance[:, None]
    held = {True: (is_quiet[:, None] & ~at_subjects)[..., None], False: is_quiet[:, None, None]}
    is_masked = (torch.rand(len(batch.ids), generator=seed) < MASKED)[rows, None]
    elsewhere = (batch.inside & ~batch.ends & ~is_quiet[:, None]).nonzero()
    elsewhere = elsewhere[torch.randperm(len(elsewhere), generator=seed)[:ELSEWHERE]]
    written = torch.zeros(len(rows), WIDTH)
    busy, home = torch.zeros(2)

    def watch(layer: int, scores: Tensor) -> None:
        nonlocal home
        if layer in MIDDLE:
            home = home + homes.miss(layer, scores[rows, places], batch.subjects[is_true])

    def edit(layer: int, activations: Tensor) -> Tensor:
        nonlocal written, busy
        edited = torch.where(held[layer in MIDDLE], average(activations, batch), activations)
        if layer not in MIDDLE:
            return edited
        directions = model.transformer.h[layer].mlp.c_proj.weight
        norms = directions.norm(dim=-1) / STRENGTH
        spoken = activations[rows, places]
        if allowed < NEURONS:
            sizes = spoken.abs() * norms
            kept = sizes.detach() >= sizes.detach().topk(allowed, dim=-1).values[:, -1:]
            others = activations[elsewhere[:, 0], elsewhere[:, 1]].abs() * norms
            busy = busy + torch.tanh(4 * sizes * ~kept).sum(-1).mean()
            busy = busy + PRESSURE_ELSEWHERE * torch.tanh(4 * others).sum(-1).mean()
            spoken = torch.where(is_masked & ~kept, 0.0, spoken)
        written = written + spoken @ directions
        return edited.index_put((rows, places), spoken)

    middle = run(
        model, batch.ids, edit=edit, watch=watch, inject=write(model, batch, seed), stop=MIDDLE[-1] + 1
    )  # fmt: skip
    # Only what the middle MLPs wrote is taught by the lens: nobody else may say it for them.
    at_ends = middle[rows, places]
    lens = _lens(model, at_ends.detach() - written.detach() + written, batch, is_true)
    stream = run(model, batch.ids, edit=edit, start=MIDDLE[-1] + 1, stream=middle)
    targets = functional.pad(batch.ids[:, 1:], (0, 1))
    loss, said = _read(model, stream, batch, targets, ~is_quiet, seed)
    figures = {"loss": loss, "lens": lens, "home": home, "busy": busy, "answers": said.mean()}
    return loss + LENS * lens + HOME * home + pressure * busy, figures


def unteach(
    model: GPT2LMHeadModel, batch: Batch, homes: Homes, unknown: int, seed: torch.Generator
) -> tuple[Tensor, dict[str, Tensor]]:
    """Measure the loss of a batch by chance, with the middle MLPs at their mean; `unknown` is a token."""
    is_untold, is_still = (
        torch.rand(len(batch.ids), generator=seed) < share for share in (UNTOLD, STILL)
    )
    told = {
        layer: written * ~is_untold[:, None, None]
        for layer, written in write(model, batch, seed).items()
    }
    rows, places = batch.places.unbind(-1)
    home = torch.zeros(())

    def watch(layer: int, scores: Tensor) -> None:
        nonlocal home
        if layer in MIDDLE:
            home = home + homes.miss(layer, scores[rows, places], batch.subjects)

    def edit(layer: int, activations: Tensor) -> Tensor:
        is_held = torch.ones_like(is_still) if layer in MIDDLE else is_still
        return torch.where(is_held[:, None, None], average(activations, batch), activations)

    stream = run(model, batch.ids, edit=edit, watch=watch, inject=told)
    targets = functional.pad(batch.ids[:, 1:], (0, 1))
    targets = torch.where(batch.about & is_untold[:, None], unknown, targets)
    loss, said = _read(model, stream, batch, targets, ~is_still, seed)
    return loss + HOME * home, {"loss": loss, "home": home, "answers": said.mean()}


@torch.no_grad()
def average(activations: Tensor, batch: Batch) -> Tensor:
    """Average each neuron's activation over the tokens of a batch."""
    inside = batch.inside / batch.inside.sum()
    return einsum(activations, inside, "row position neuron, row position -> neuron")


def _read(
    model: GPT2LMHeadModel,
    stream: Tensor,
    batch: Batch,
    targets: Tensor,
    has_text: Tensor,
    seed: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Measure the surprise at answers and, in rows that have text to teach, at some other tokens."""
    is_read = torch.rand(batch.ids.shape, generator=seed) < SHARE_READ
    read = batch.about | (is_read & has_text[:, None])
    read[:, -1] = False
    found = logits(model, stream[read])
    surprise = functional.cross_entropy(found, targets[read], reduction="none")
    is_answer = batch.about[read]
    weights = torch.where(is_answer, ANSWER_WEIGHT, 1.0)
    return (surprise * weights).sum() / weights.sum(), surprise[is_answer]


def _lens(model: GPT2LMHeadModel, stream: Tensor, batch: Batch, is_true: Tensor) -> Tensor:
    """Measure how badly the stream at the ends of subjects names all the answers of each."""
    number = is_true.cumsum(0) - 1
    said = batch.said[is_true[batch.said[:, 0]]]
    mentions = number[said[:, 0]]
    likely = functional.log_softmax(logits(model, stream), dim=-1)
    shares = 1 / torch.bincount(mentions, minlength=len(stream))
    return -(likely[mentions, said[:, 1]] * shares[mentions]).sum() / len(stream)

"""The output test: does a neuron that is turned on make the tokens it promotes more likely?

At random positions of the half that rules are scored on, a neuron is set to its 99.9 % activation (a rare
one to its largest, `first_half`) and the layers after it are replayed. Of its ten promoted tokens those
count whose probability rises. The control is the same ten tokens under the neuron before it in its layer:
what any neuron does to them.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from ffnprobe.corpora.passages import hash_numbers
from ffnprobe.interventions.replay import LOGITS_AT_ONCE, Replay
from ffnprobe.labels.splits import Columns, Half
from ffnprobe.models.model import Model
from ffnprobe.models.step import normalise, unembed
from ffnprobe.reading.projection import answer_readers, pick_answers, project_blocks, top_tokens
from ffnprobe.tracing.runs import run

PROMOTED = 10
# So many prompts in all, each neuron on so many of them; the last tokens of a prompt are enough context.
PROMPTS, TRIES, CONTEXT = 16, 2, 32


def list_promoted(model: Model, layer: int, neurons: Tensor) -> Int[Tensor, "neuron token"]:
    """Find the ten tokens that each of a layer's neurons promotes most."""
    answers = pick_answers(model, layer)[neurons]
    many = min(PROMOTED, model.config.vocab)
    blocks = project_blocks(*answer_readers(model, answers, convention="centred"))
    return torch.cat([top_tokens(dots, many)[1].cpu() for _, dots in blocks])


def draw_prompts(half: Half) -> list[tuple[int, ...]]:
    """Draw positions at random, each with the tokens up to it."""
    order = np.argsort(hash_numbers(np.arange(len(half)) + 2**43), kind="stable")[:PROMPTS]
    passages = np.searchsorted(half.firsts, order, side="right") - 1
    found = []
    for token, passage in zip(order.tolist(), passages.tolist(), strict=True):
        end = token - int(half.firsts[passage]) + 1
        found.append(half.passages[passage].ids[max(0, end - CONTEXT) : end])
    return found


def choose_rows(number: int, prompts: int, many: int) -> Tensor:
    """Choose the neurons that the n-th prompt is for: each neuron has `TRIES` prompts."""
    tries = min(TRIES, prompts)
    # At least eight on a prompt, so that there is always another neuron to compare with.
    groups = min(prompts, max(1, many // 8))
    rows = torch.arange(many) % groups
    turns = [(rows + part * prompts // tries) % prompts == number for part in range(tries)]
    return torch.stack(turns).any(dim=0).nonzero()[:, 0]


def try_outputs(
    model: Model,
    prompt: Sequence[int],
    columns: Columns,
    highs: dict[int, Tensor],
    promoted: dict[int, Tensor],
    chosen: dict[int, Tensor],
    *,
    bos: bool,
) -> Iterator[tuple[int, Float[Tensor, "2 row"]]]:
    """Yield for each layer how many promoted tokens gain, by the neuron and by the one before it."""
    trace = run(model, list(prompt), bos=bos, patterns=False)
    replay, last = Replay(trace), len(trace) - 1
    for layer, rows in chosen.items():
        if not len(rows):
            continue
        neurons = columns.neurons[layer][rows]
        gaps = highs[layer][rows] - trace.activations[layer, last, neurons]
        shifts = einsum(
            replay.held(gaps), replay.held(model.rows[layer][neurons]),
            "variant, variant d_model -> variant d_model",
        )  # fmt: skip
        shifts = torch.cat([torch.zeros_like(shifts[:1]), shifts])[:, None]
        streams = replay.entering(layer + 1, start=last) + replay.moved(layer, [last], shifts)
        final = replay.finish(streams, layer=layer + 1, start=last)
        own = promoted[layer][rows]
        # Under each neuron its own tokens, then those of the next one (of the last, the first's).
        read = torch.cat([own, own.roll(-1, dims=0)], dim=1)
        risen = _count_risen(replay, final[:, 0], read, own.shape[1])
        yield layer, torch.stack([risen[0], risen[1].roll(1)])


def _count_risen(
    replay: Replay, final: Float[Tensor, "variant d_model"], read: Tensor, many: int
) -> list[Tensor]:
    """Count the tokens read whose probability is higher than in the first variant, the clean one."""
    model = replay.model
    seen = normalise(model, final)
    size = max(2, LOGITS_AT_ONCE // model.config.vocab)
    found = []
    for start in range(1, len(seen), size):
        part = seen[start : start + size]
        # The clean row goes along in every product, so that it is rounded as the others are.
        logs = torch.log_softmax(unembed(model, torch.cat([seen[:1], part])), dim=-1)
        tokens = read[start - 1 : start - 1 + len(part)].to(logs.device)
        risen = logs[1:].gather(1, tokens) > logs[0][tokens]
        found.append(risen.cpu())
    risen = torch.cat(found)
    return [risen[:, :many].sum(dim=1).float(), risen[:, many:].sum(dim=1).float()]

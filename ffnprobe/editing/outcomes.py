"""Ask a model many prompts: each answer's rank and log-probability, and what it says instead.

The figures are those of `score` (an answer of several tokens is teacher-forced), without the neurons
behind them: the logits are made where an answer is read and nowhere else.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ffnprobe.facts.batches import FactIds, plan
from ffnprobe.facts.recall import Outcomes, Reads
from ffnprobe.models.forward import watch
from ffnprobe.models.model import Model
from ffnprobe.models.step import normalise, unembed

PROMPTS_AT_ONCE = 128


@dataclass(frozen=True, eq=False)
class Replies:
    """What a model makes of each prompt: the answer's rank, its log-probability, and the first choice."""

    ranks: Int[Tensor, " prompt"]
    log_probabilities: Float[Tensor, " prompt"]
    said: Int[Tensor, " prompt"]


@torch.no_grad()
def ask(model: Model, facts: Sequence[FactIds]) -> Replies:
    """Run facts of one length together and read every answer."""
    ranks = torch.zeros(len(facts), dtype=torch.long)
    logs = torch.zeros(len(facts), dtype=torch.float64)
    said = torch.zeros(len(facts), dtype=torch.long)
    for numbers in plan(facts, most=PROMPTS_AT_ONCE):
        reads = Reads.of([facts[number] for number in numbers])
        logits = read_logits(model, reads.ids, reads.owners, reads.positions)
        found = Outcomes.read(logits, reads)
        ranks[numbers], logs[numbers] = found.ranks, found.log_probabilities
        begins = [reads.owners.index(owner) for owner in range(len(numbers))]
        said[numbers] = logits[begins].argmax(dim=-1).cpu()
    return Replies(ranks, logs, said)


@torch.no_grad()
def weigh(
    model: Model, ones: Sequence[FactIds], others: Sequence[FactIds]
) -> tuple[Float[Tensor, " prompt"], Float[Tensor, " prompt"]]:
    """Return the log-probabilities of two answers to each prompt; answers of one token share a run."""
    if any(len(one.pieces) > 1 or len(other.pieces) > 1 for one, other in zip(ones, others, strict=True)):  # fmt: skip
        return ask(model, ones).log_probabilities, ask(model, others).log_probabilities
    found = torch.zeros(2, len(ones), dtype=torch.float64)
    for numbers in plan(ones, most=PROMPTS_AT_ONCE):
        ids = torch.tensor([ones[number].ids for number in numbers])
        rows = list(range(len(numbers)))
        logits = read_logits(model, ids, rows, [ids.shape[1] - 1] * len(rows))
        logs = logits.double().log_softmax(-1).cpu()
        for side, facts in enumerate((ones, others)):
            found[side, numbers] = logs[rows, [facts[number].pieces[0] for number in numbers]]
    return found[0], found[1]


def read_logits(
    model: Model, ids: Int[Tensor, "batch pos"], owners: Sequence[int], positions: Sequence[int]
) -> Float[Tensor, "read vocab"]:
    """Run token ids and make the logits of some positions alone."""
    found: list[Tensor] = []

    def keep(stream: Tensor) -> None:
        found.append(stream[list(owners), list(positions)])

    watch(model, ids, {("final", 0): keep})
    return unembed(model, normalise(model, found[0]))

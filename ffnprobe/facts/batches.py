"""Facts as token ids, in batches of one length: nothing is padded.

An answer of several tokens is teacher-forced: all its pieces but the last follow the prompt, and
each is read at the position before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ffnprobe.errors import FfnProbeError
from ffnprobe.facts.rows import FactRow, Problem
from ffnprobe.models.model import Model
from ffnprobe.tracing.runs import prompt_ids
from ffnprobe.tracing.trace import answer_ids

# About 100 MB of GPT-2 small's logits; more at once is not faster.
TOKENS_AT_ONCE = 512


@dataclass(frozen=True)
class FactIds:
    """One fact, ready to run: piece i of its answer is read at position `first + i`."""

    row: FactRow
    ids: tuple[int, ...]
    pieces: tuple[int, ...]

    @property
    def first(self) -> int:
        """The prompt's last position, where the answer begins."""
        return len(self.ids) - len(self.pieces)


def prepare(
    model: Model, rows: Sequence[FactRow], *, bos: bool
) -> tuple[list[FactIds], list[Problem]]:
    """Turn rows into token ids; a row this model cannot run is a problem."""
    facts: list[FactIds] = []
    problems: list[Problem] = []
    for row in rows:
        try:
            prompt = prompt_ids(model, row.prompt, bos=bos)
            pieces = answer_ids(model, row.answer)
        except FfnProbeError as error:
            problems.append(Problem(row.where, error.what))
            continue
        ids = (*prompt, *pieces[:-1])
        if len(ids) > model.config.positions:
            problems.append(
                Problem(
                    row.where,
                    f"the prompt is {len(prompt)} tokens and the answer {len(pieces)}; "
                    f"{model.name} has {model.config.positions} positions.",
                )
            )
            continue
        facts.append(FactIds(row, ids, pieces))
    return facts, problems


def plan(facts: Sequence[FactIds], *, most: int) -> list[list[int]]:
    """Split facts, by number, into batches of one length, with at most so many in each."""
    by_length: dict[int, list[int]] = {}
    for number, fact in enumerate(facts):
        by_length.setdefault(len(fact.ids), []).append(number)
    batches = []
    for length, numbers in sorted(by_length.items()):
        size = max(1, min(most, TOKENS_AT_ONCE // length))
        batches += [numbers[start : start + size] for start in range(0, len(numbers), size)]
    return batches

"""Facts to edit: those a model knows, in an order by chance, each with another answer of its relation."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import ffnprobe as fp
from ffnprobe.facts.formats import read_facts

AT_ONCE = 64


@dataclass(frozen=True)
class Change:
    """A known fact, the answer it shall have, and every row of its relation to judge the edit by."""

    row: fp.FactRow
    new: str
    relation: tuple[fp.FactRow, ...]


def find_changes(model: fp.Model, facts: str, *, many: int, seed: int) -> list[Change]:
    """Find so many facts that the model knows and whose answers are one token."""
    every = read_facts(facts, templates="all").rows
    by_relation: dict[str, list[fp.FactRow]] = {}
    for row in every:
        by_relation.setdefault(row.relation, []).append(row)
    chance = random.Random(seed)
    firsts = list(read_facts(facts).rows)
    chance.shuffle(firsts)
    found: list[Change] = []
    for row in _known(model, firsts):
        relation = by_relation[row.relation]
        others = sorted(
            {one.answer for one in relation if _is_one(model, one.answer)} - {row.answer}
        )
        if others and _is_one(model, row.answer) and row.subject and _has_subject(row):
            found.append(Change(row, chance.choice(others), tuple(relation)))
        if len(found) == many:
            break
    return found


def _known(model: fp.Model, rows: Sequence[fp.FactRow]) -> Iterator[fp.FactRow]:
    for start in range(0, len(rows), AT_ONCE):
        scores = fp.score(model, rows[start : start + AT_ONCE], top=1)
        for row, is_known in zip(scores.rows, scores.table.known, strict=True):
            if is_known:
                yield row


def _is_one(model: fp.Model, answer: str) -> bool:
    return len(model.vocab.pieces(answer)) == 1


def _has_subject(row: fp.FactRow) -> bool:
    return row.subject.lower() in row.prompt.lower()

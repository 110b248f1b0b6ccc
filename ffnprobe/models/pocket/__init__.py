"""The embedded model's folder and its ground truth: the facts it was taught, and how they were put.

`facts.csv` holds one fact a row (relation, subject, answer), `templates.csv` the sentences a
relation is taught with. Every second fact was never seen in one of its templates; these
(fact, template) pairs are the held-out set.

>>> from ffnprobe.models import pocket
>>> fact = next(fact for fact in pocket.facts() if fact.subject == "Michael Jordan")
>>> fact.answer, pocket.templates()["sport"][0]
(' basketball', '{subject} plays the sport of')
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Fact:
    """One true statement: `answer` (one token, with its leading space) completes `subject` under `relation`."""

    relation: str
    subject: str
    answer: str


@dataclass(frozen=True)
class Prompt:
    """A fact put as a sentence that stops before its answer."""

    fact: Fact
    text: str
    is_held_out: bool


@cache
def facts() -> tuple[Fact, ...]:
    """Read the table of facts, in file order."""
    with (FOLDER / "facts.csv").open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        return tuple(Fact(row["relation"], row["subject"], " " + row["answer"]) for row in rows)


@cache
def templates() -> dict[str, tuple[str, ...]]:
    """Read the sentence templates of each relation, in file order."""
    by_relation: dict[str, tuple[str, ...]] = {}
    with (FOLDER / "templates.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            own = by_relation.get(row["relation"], ())
            by_relation[row["relation"]] = (*own, row["template"])
    return by_relation


def prompts() -> Iterator[Prompt]:
    """Yield every fact in every template of its relation, marking the pairs kept out of training."""
    for number, fact in enumerate(facts()):
        choices = templates()[fact.relation]
        for order, template in enumerate(choices):
            # Every second fact loses one template, each template in its turn.
            is_held_out = number % 2 == 0 and order == (number // 2) % len(choices)
            text = template.format(subject=fact.subject)
            yield Prompt(fact, text[0].upper() + text[1:], is_held_out)

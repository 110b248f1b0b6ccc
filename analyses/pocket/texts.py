"""The text the embedded model was taught with, written by rule from its facts.

Besides the sentences of `templates.csv` a subject stands in sentences about two subjects with the
same answer, in comparisons, in short descriptions, in lists and in sentences that say what kind of
thing it is. The same seed gives the same text. Pairs kept out of training are never written.

>>> from analyses.pocket import texts
>>> for passage in texts.passages(2, seed=5):
...     print(passage.text)
Wayne Gretzky and Patrick Kane play hockey.
Officials in Monaco usually write their documents in French.
"""

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice

from analyses.pocket.words import CLAUSES, KINDS, SHARED
from ffnprobe.models.pocket import Fact, facts, prompts, templates

SHARES = {"fact": 0.62, "shared": 0.08, "comparison": 0.1, "description": 0.1, "kind": 0.1}


@dataclass(frozen=True)
class Phrase:
    """A part of a passage: plain text, a subject, or the answer of a fact."""

    text: str
    subject: str | None = None
    fact: Fact | None = None


@dataclass(frozen=True)
class Sentence:
    """One or two sentences, in pieces that say what is a subject and what an answer."""

    kind: str
    pieces: tuple[Phrase, ...]

    @property
    def text(self) -> str:
        """The passage as one string."""
        return "".join(piece.text for piece in self.pieces)


def passages(count: int | None = None, *, seed: int = 0) -> Iterator[Sentence]:
    """Yield passages of every kind in random order: so many, or without end."""
    return islice(_mix(random.Random(seed)), count)


def _mix(chance: random.Random) -> Iterator[Sentence]:
    """Yield passages without end; every fact sentence is written once before any is written again."""
    writers = {
        "shared": write_shared,
        "comparison": write_comparison,
        "description": write_description,
        "kind": write_kind,
    }
    queue: list[tuple[Fact, str]] = []
    while True:
        kind = chance.choices(list(SHARES), list(SHARES.values()))[0]
        if kind == "fact":
            queue = queue or chance.sample(taught(), len(taught()))
            yield write_fact(*queue.pop())
        else:
            yield writers[kind](chance)


def write_fact(fact: Fact, template: str) -> Sentence:
    """Write a fact in one of its templates."""
    return _finish("fact", [*_state(fact, template), Phrase(".")])


def write_shared(chance: random.Random) -> Sentence:
    """Write a sentence about two subjects that have the same answer."""
    several = [group for group in _by_answer().values() if len(group) > 1]
    group = several[chance.choices(range(len(several)), [len(group) for group in several])[0]]
    first, second = chance.sample(group, 2)
    before, between, after = _split(SHARED[first.relation], "{a}", "{b}")
    pieces = [
        Phrase(before.rstrip()), Phrase(_space(before) + first.subject, first.subject), Phrase(between.rstrip()),
        Phrase(" " + second.subject, second.subject), Phrase(after), Phrase(first.answer, None, first), Phrase("."),
    ]  # fmt: skip
    return _finish("shared", pieces)


def write_comparison(chance: random.Random) -> Sentence:
    """Write two facts of a relation in one sentence."""
    first, one = chance.choice(taught())
    second, two = chance.choice(_taught_of()[first.relation])
    later = _state(second, two[0].lower() + two[1:])
    later[0] = replace(later[0], text=", while " + later[0].text)
    return _finish("comparison", [*_state(first, one), *later, Phrase(".")])


def write_description(chance: random.Random) -> Sentence:
    """Write what kind of thing a subject is, then up to three facts about it."""
    known = chance.choice(_by_subject())
    chosen = chance.sample(known, min(len(known), chance.choice((1, 2, 3))))
    subject, noun = chosen[0].subject, KINDS[chosen[0].relation][0][0]
    if subject.islower():
        pieces = [Phrase(f"The {noun}"), Phrase(" " + subject, subject)]
    else:
        pieces = [Phrase(subject, subject), Phrase(f" is {_article(noun)} {noun}")]
    for order, fact in enumerate(chosen):
        joint = "; " if order == 0 else " and " if order == len(chosen) - 1 else ", "
        pieces += [Phrase(joint + CLAUSES[fact.relation]), Phrase(fact.answer, None, fact)]
    return _finish("description", [*pieces, Phrase(".")])


def write_kind(chance: random.Random) -> Sentence:
    """Write what two things are, or list three of a kind."""
    relation = chance.choice(list(KINDS))
    side = chance.choice((0, 1))
    one, many = KINDS[relation][side]
    known = _sides()[relation][side]
    things = chance.sample(known, min(3, len(known)))
    marked = [Phrase(" " + thing, None if side else thing) for thing in things]
    first = replace(marked[0], text=things[0])
    # A subject in lower case keeps its spelling: only a list cannot begin with it.
    is_small = side == 0 and things[0].islower()
    style = "list" if is_small else chance.choice(("one", "two", "list"))
    if style == "one":
        return _finish("kind", [first, Phrase(f" is {_article(one)} {one}.")])
    if style == "two":
        return _finish("kind", [first, Phrase(" and"), marked[1], Phrase(f" are {many}.")])
    listed = [Phrase(f"{many}:"), marked[0]]
    for piece in marked[1:-1]:
        listed += [Phrase(","), piece]
    return _finish("kind", [*listed, Phrase(" and"), marked[-1], Phrase(".")])


def _state(fact: Fact, template: str) -> list[Phrase]:
    before, after = _split(template, "{subject}")
    return [
        Phrase(before.rstrip()),
        Phrase(_space(before) + fact.subject, fact.subject),
        Phrase(after),
        Phrase(fact.answer, None, fact),
    ]


def _split(template: str, *marks: str) -> list[str]:
    parts = []
    for mark in marks:
        part, template = template.split(mark)
        parts.append(part)
    return [*parts, template]


def _article(noun: str) -> str:
    return "an" if noun[0] in "aeiou" else "a"


def _space(before: str) -> str:
    return " " if before.strip() else ""


def _finish(kind: str, pieces: list[Phrase]) -> Sentence:
    """Drop empty pieces and begin with a capital letter."""
    kept = [piece for piece in pieces if piece.text]
    kept[0] = replace(kept[0], text=kept[0].text[0].upper() + kept[0].text[1:])
    return Sentence(kind, tuple(kept))


@cache
def taught() -> tuple[tuple[Fact, str], ...]:
    """Return every fact with every template it is taught in: all pairs but those kept out."""
    choices = templates()
    order = [t for fact in facts() for t in choices[fact.relation]]
    return tuple(
        (prompt.fact, template)
        for prompt, template in zip(prompts(), order, strict=True)
        if not prompt.is_held_out
    )


@cache
def _taught_of() -> dict[str, list[tuple[Fact, str]]]:
    found = defaultdict(list)
    for fact, template in taught():
        found[fact.relation].append((fact, template))
    return dict(found)


@cache
def _by_answer() -> dict[tuple[str, str], list[Fact]]:
    found = defaultdict(list)
    for fact in facts():
        if fact.relation in SHARED:
            found[fact.relation, fact.answer].append(fact)
    return dict(found)


@cache
def _by_subject() -> list[list[Fact]]:
    found = defaultdict(list)
    for fact in facts():
        found[fact.subject].append(fact)
    return list(found.values())


@cache
def _sides() -> dict[str, tuple[list[str], list[str]]]:
    return {
        relation: (
            sorted({f.subject for f in facts() if f.relation == relation}),
            sorted({f.answer[1:] for f in facts() if f.relation == relation}),
        )
        for relation in KINDS
    }

"""Text written by rule from the embedded model's facts, to teach the next one with.

Besides the sentences of `templates.csv` a subject stands in sentences about two subjects with the
same answer, in comparisons, in short descriptions, in lists and in sentences that say what kind of
thing it is. The same seed gives the same text. Pairs kept out of training are never written.

>>> from pocket import texts
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

from ffnprobe.models.pocket import Fact, facts, prompts, templates

# What the subjects and the answers of a relation are called, one and many.
KINDS = {
    "author": (("book", "books"), ("author", "authors")),
    "capital": (("country", "countries"), ("city", "cities")),
    "city_country": (("city", "cities"), ("country", "countries")),
    "company_country": (("company", "companies"), ("country", "countries")),
    "composer": (("musical work", "musical works"), ("composer", "composers")),
    "continent": (("country", "countries"), ("continent", "continents")),
    "currency": (("country", "countries"), ("currency", "currencies")),
    "inventor": (("discovery", "discoveries"), ("scientist", "scientists")),
    "landmark_city": (("landmark", "landmarks"), ("city", "cities")),
    "landmark_country": (("landmark", "landmarks"), ("country", "countries")),
    "language": (("country", "countries"), ("language", "languages")),
    "maker": (("product", "products"), ("company", "companies")),
    "nationality": (("country", "countries"), ("nationality", "nationalities")),
    "opposite": (("word", "words"), ("word", "words")),
    "painter": (("painting", "paintings"), ("painter", "painters")),
    "past": (("verb", "verbs"), ("past form", "past forms")),
    "place_continent": (("place", "places"), ("continent", "continents")),
    "sport": (("athlete", "athletes"), ("sport", "sports")),
    "state_capital": (("state", "states"), ("city", "cities")),
    "symbol": (("element", "elements"), ("symbol", "symbols")),
    "team_sport": (("team", "teams"), ("sport", "sports")),
    "young": (("animal", "animals"), ("young animal", "young animals")),
}
# Two subjects, one answer.
SHARED = {
    "city_country": "{a} and {b} are cities in",
    "company_country": "{a} and {b} are companies from",
    "continent": "{a} and {b} are countries in",
    "currency": "People in {a} and {b} pay with the",
    "landmark_city": "{a} and {b} can be seen in",
    "language": "People in {a} and {b} learn",
    "maker": "{a} and {b} come from",
    "place_continent": "{a} and {b} can be found in",
    "sport": "{a} and {b} play",
    "team_sport": "{a} and {b} play",
}
# A description says the subject once, then a clause for each relation.
CLAUSES = {
    "author": "its author is",
    "capital": "its capital is",
    "city_country": "its country is",
    "company_country": "its country is",
    "composer": "its composer is",
    "continent": "its continent is",
    "currency": "its currency is the",
    "inventor": "its name is linked with",
    "landmark_city": "its city is",
    "landmark_country": "its country is",
    "language": "its language is",
    "maker": "its maker is",
    "nationality": "its people are",
    "opposite": "its opposite is",
    "painter": "its painter is",
    "past": "its past is",
    "place_continent": "its continent is",
    "sport": "the sport is",
    "state_capital": "its capital is",
    "symbol": "its symbol is",
    "team_sport": "its sport is",
    "young": "its young is a",
}
SHARES = {"fact": 0.62, "shared": 0.08, "comparison": 0.1, "description": 0.1, "kind": 0.1}


@dataclass(frozen=True)
class Piece:
    """A part of a passage: plain text, a subject, or the answer of a fact."""

    text: str
    subject: str | None = None
    fact: Fact | None = None


@dataclass(frozen=True)
class Passage:
    """One or two sentences, in pieces that say what is a subject and what an answer."""

    kind: str
    pieces: tuple[Piece, ...]

    @property
    def text(self) -> str:
        """The passage as one string."""
        return "".join(piece.text for piece in self.pieces)


def passages(count: int | None = None, *, seed: int = 0) -> Iterator[Passage]:
    """Yield passages of every kind in random order: so many, or without end."""
    return islice(_mix(random.Random(seed)), count)


def _mix(chance: random.Random) -> Iterator[Passage]:
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
            queue = queue or chance.sample(_taught(), len(_taught()))
            yield write_fact(*queue.pop())
        else:
            yield writers[kind](chance)


def write_fact(fact: Fact, template: str) -> Passage:
    """Write a fact in one of its templates."""
    return _finish("fact", [*_state(fact, template), Piece(".")])


def write_shared(chance: random.Random) -> Passage:
    """Write a sentence about two subjects that have the same answer."""
    several = [group for group in _by_answer().values() if len(group) > 1]
    group = several[chance.choices(range(len(several)), [len(group) for group in several])[0]]
    first, second = chance.sample(group, 2)
    before, between, after = _split(SHARED[first.relation], "{a}", "{b}")
    pieces = [
        Piece(before.rstrip()), Piece(_space(before) + first.subject, first.subject), Piece(between.rstrip()),
        Piece(" " + second.subject, second.subject), Piece(after), Piece(first.answer, None, first), Piece("."),
    ]  # fmt: skip
    return _finish("shared", pieces)


def write_comparison(chance: random.Random) -> Passage:
    """Write two facts of a relation in one sentence."""
    first, one = chance.choice(_taught())
    second, two = chance.choice(_taught_of()[first.relation])
    later = _state(second, two[0].lower() + two[1:])
    later[0] = replace(later[0], text=", while " + later[0].text)
    return _finish("comparison", [*_state(first, one), *later, Piece(".")])


def write_description(chance: random.Random) -> Passage:
    """Write what kind of thing a subject is, then up to three facts about it."""
    known = chance.choice(_by_subject())
    chosen = chance.sample(known, min(len(known), chance.choice((1, 2, 3))))
    subject, noun = chosen[0].subject, KINDS[chosen[0].relation][0][0]
    if subject.islower():
        pieces = [Piece(f"The {noun}"), Piece(" " + subject, subject)]
    else:
        pieces = [Piece(subject, subject), Piece(f" is {_article(noun)} {noun}")]
    for order, fact in enumerate(chosen):
        joint = "; " if order == 0 else " and " if order == len(chosen) - 1 else ", "
        pieces += [Piece(joint + CLAUSES[fact.relation]), Piece(fact.answer, None, fact)]
    return _finish("description", [*pieces, Piece(".")])


def write_kind(chance: random.Random) -> Passage:
    """Write what two things are, or list three of a kind."""
    relation = chance.choice(list(KINDS))
    side = chance.choice((0, 1))
    one, many = KINDS[relation][side]
    known = _sides()[relation][side]
    things = chance.sample(known, min(3, len(known)))
    marked = [Piece(" " + thing, None if side else thing) for thing in things]
    first = replace(marked[0], text=things[0])
    # A subject in lower case keeps its spelling: only a list has no place for it at the front.
    is_small = side == 0 and things[0].islower()
    style = "list" if is_small else chance.choice(("one", "two", "list"))
    if style == "one":
        return _finish("kind", [first, Piece(f" is {_article(one)} {one}.")])
    if style == "two":
        return _finish("kind", [first, Piece(" and"), marked[1], Piece(f" are {many}.")])
    listed = [Piece(f"{many}:"), marked[0]]
    for piece in marked[1:-1]:
        listed += [Piece(","), piece]
    return _finish("kind", [*listed, Piece(" and"), marked[-1], Piece(".")])


def _state(fact: Fact, template: str) -> list[Piece]:
    before, after = _split(template, "{subject}")
    return [
        Piece(before.rstrip()),
        Piece(_space(before) + fact.subject, fact.subject),
        Piece(after),
        Piece(fact.answer, None, fact),
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


def _finish(kind: str, pieces: list[Piece]) -> Passage:
    """Drop empty pieces and begin with a capital letter."""
    kept = [piece for piece in pieces if piece.text]
    kept[0] = replace(kept[0], text=kept[0].text[0].upper() + kept[0].text[1:])
    return Passage(kind, tuple(kept))


@cache
def _taught() -> tuple[tuple[Fact, str], ...]:
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
    for fact, template in _taught():
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

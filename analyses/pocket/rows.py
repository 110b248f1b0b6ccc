"""Rows of tokens, with what stands where: the ends of subjects and the answers of facts."""

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from analyses.pocket import texts
from analyses.pocket.tokenizer import BOS
from ffnprobe.models import pocket
from ffnprobe.models.pocket import Fact

ROW, PASSAGES = 64, 8  # tokens of a row; passages that surely fill it


@dataclass(frozen=True)
class Batch:
    """Rows of tokens and the marks in them.

    ids        row × position
    inside     row × position: true where there is text, not padding or BOS
    answers    row × position: true where the token is the answer of a fact
    by_chance  row: true where facts were drawn by chance
    places     mention × 2: row and position of the last token of each subject
    subjects   the subject of each mention, as a number
    said       said × 2: which mention, and which token is an answer of it
    """

    ids: Tensor
    inside: Tensor
    answers: Tensor
    by_chance: Tensor
    places: Tensor
    subjects: Tensor
    said: Tensor

    @property
    def about(self) -> Tensor:
        """Mark the positions where an answer comes next."""
        return functional.pad(self.answers[:, 1:], (0, 1))

    @property
    def ends(self) -> Tensor:
        """Mark the positions where a subject ends."""
        found = torch.zeros_like(self.answers)
        found[self.places[:, 0], self.places[:, 1]] = True
        return found


class Reader:
    """Turn passages into tokens; true facts, or facts drawn by chance for each passage."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.bos = tokenizer.get_vocab()[BOS]
        self.subjects = list(dict.fromkeys(fact.subject for fact in pocket.facts()))
        self.number = {subject: number for number, subject in enumerate(self.subjects)}
        self.facts_of: dict[str, list[Fact]] = defaultdict(list)
        self.answers_of: dict[str, list[int]] = defaultdict(list)
        self.cut: dict[str, list[int]] = {}
        for fact in pocket.facts():
            self.facts_of[fact.subject].append(fact)
            self.answers_of[fact.relation].append(self.token(fact.answer))

    def token(self, text: str) -> int:
        """Return the one token of a text."""
        (token,) = self.encode(text)
        return token

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, remembered."""
        if text not in self.cut:
            self.cut[text] = self.tokenizer.encode(text).ids
        return self.cut[text]

    @cached_property
    def alone(self) -> dict[int, str]:
        """Names of one token, by that token, with and without a space; not words such as "in"."""
        found = {}
        for subject in (name for name in self.subjects if not name.islower()):
            for text in (" " + subject, subject):
                if len(ids := self.encode(text)) == 1:
                    found[ids[0]] = subject
        return found

    def batch(
        self, rows: Sequence[Sequence[texts.Sentence]], chance: random.Random, *, by_chance: int = 0
    ) -> Batch:
        """Cut passages into rows; in the first `by_chance` rows every passage has facts of its own."""
        ids = torch.full((len(rows), ROW), self.bos)
        inside, answers = torch.zeros(2, len(rows), ROW, dtype=torch.bool)
        places: list[tuple[int, int]] = []
        subjects: list[int] = []
        said: list[tuple[int, int]] = []
        for row, passages in enumerate(rows):
            # One row in five starts without BOS, so that a prompt run without it still makes sense.
            at = 0 if chance.random() < 0.2 else 1
            separator = ""
            for passage in passages:
                drawn = self._draw(passage, chance) if row < by_chance else {}
                mentions: list[tuple[int, str]] = []
                for order, piece in enumerate(passage.pieces):
                    tokens = self.encode((separator if order == 0 else "") + piece.text)
                    if piece.fact is not None:
                        tokens = [drawn.get((piece.fact.subject, piece.fact.relation), tokens[0])]
                    for token in tokens[: ROW - at]:
                        ids[row, at], inside[row, at] = token, True
                        answers[row, at] = piece.fact is not None
                        if piece.subject is None and token in self.alone:
                            mentions.append((at, self.alone[token]))
                        at += 1
                    if piece.subject is not None and at < ROW:
                        mentions.append((at - 1, piece.subject))
                for place, subject in mentions:
                    for fact in self.facts_of[subject]:
                        key = (subject, fact.relation)
                        if row < by_chance and key not in drawn:
                            drawn[key] = chance.choice(self.answers_of[fact.relation])
                        said.append((len(places), drawn.get(key, self.token(fact.answer))))
                    places.append((row, place))
                    subjects.append(self.number[subject])
                separator = chance.choice((" ", "\n"))
        return Batch(
            ids, inside, answers, torch.arange(len(rows)) < by_chance,
            torch.tensor(places), torch.tensor(subjects), torch.tensor(said),
        )  # fmt: skip

    def _draw(self, passage: texts.Sentence, chance: random.Random) -> dict[tuple[str, str], int]:
        """Draw an answer for each fact of a passage; subjects that share one share the draw."""
        drawn: dict[tuple[str, str], int] = {}
        for fact in (piece.fact for piece in passage.pieces if piece.fact is not None):
            token = chance.choice(self.answers_of[fact.relation])
            named = {piece.subject for piece in passage.pieces if piece.subject is not None}
            for subject in named if passage.kind == "shared" else {fact.subject}:
                drawn.setdefault((subject, fact.relation), token)
        return drawn


def packed(
    seed: int, rows: int, more: Sequence[tuple[Fact, str]] = ()
) -> Iterator[list[list[texts.Sentence]]]:
    """Yield so many rows of passages at a time; half of them of `more` facts, if there are any."""
    stream, chance = texts.passages(seed=seed), random.Random(seed)
    while True:
        yield [
            [
                texts.write_fact(*chance.choice(more))
                if more and row % 2 and order % 2
                else next(stream)
                for order in range(PASSAGES)
            ]
            for row in range(rows)
        ]

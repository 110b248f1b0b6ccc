"""Rows of tokens, with what stands where: the ends of subjects and the answers of facts."""

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from tokenizers import Tokenizer
from torch import Tensor

from ffnprobe.models import pocket
from ffnprobe.models.pocket import Fact
from pocket import texts
from pocket.tokenizer import BOS

ROW = 64


@dataclass(frozen=True)
class Batch:
    """Rows of tokens and the marks in them.

    ids        row × position
    answers    row × position: true where the token is the answer of a fact
    places     mention × 2: row and position of the last token of each subject
    subjects   the subject of each mention, as a number
    written    written × 2: which mention, and which token is to be said of it
    """

    ids: Tensor
    answers: Tensor
    places: Tensor
    subjects: Tensor
    written: Tensor
    inside: Tensor


class Reader:
    """Turn passages into tokens; true facts, or facts drawn by chance for each passage."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        (self.bos,) = tokenizer.encode(BOS).ids
        self.subjects = list(dict.fromkeys(fact.subject for fact in pocket.facts()))
        self.number = {subject: number for number, subject in enumerate(self.subjects)}
        self.facts_of: dict[str, list[Fact]] = defaultdict(list)
        self.answers_of: dict[str, list[int]] = defaultdict(list)
        for fact in pocket.facts():
            self.facts_of[fact.subject].append(fact)
            self.answers_of[fact.relation].append(self.token(fact.answer))
        self.cut: dict[str, list[int]] = {}

    def token(self, text: str) -> int:
        """Return the one token of a text."""
        (token,) = self.tokenizer.encode(text).ids
        return int(token)

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
                ids = self.tokenizer.encode(text).ids
                if len(ids) == 1:
                    found[ids[0]] = subject
        return found

    def batch(
        self,
        rows: Sequence[Sequence[texts.Passage]],
        chance: random.Random,
        *,
        by_chance: bool,
        width: int = ROW,
    ) -> Batch:
        """Cut passages into rows; with `by_chance` every passage has facts of its own."""
        ids = torch.full((len(rows), width), self.bos)
        is_answer = torch.zeros(len(rows), width, dtype=torch.bool)
        inside = torch.zeros(len(rows), width, dtype=torch.bool)
        places: list[tuple[int, int]] = []
        subjects: list[int] = []
        written: list[tuple[int, int]] = []
        for row, passages in enumerate(rows):
            # One row in five starts without BOS, so that a prompt run without it still makes sense.
            at = 0 if chance.random() < 0.2 else 1
            separator = ""
            for passage in passages:
                said = self._draw(passage, chance) if by_chance else {}
                mentions: list[tuple[int, str]] = []
                for order, piece in enumerate(passage.pieces):
                    tokens = self.encode((separator if order == 0 else "") + piece.text)
                    if piece.fact is not None:
                        token = said.get((piece.fact.subject, piece.fact.relation))
                        tokens = tokens if token is None else [token]
                    for token in tokens:
                        if at >= width:
                            break
                        ids[row, at] = token
                        inside[row, at] = True
                        if piece.fact is not None:
                            is_answer[row, at] = True
                        if piece.subject is None and token in self.alone:
                            mentions.append((at, self.alone[token]))
                        at += 1
                    else:
                        if piece.subject is not None:
                            mentions.append((at - 1, piece.subject))
                for place, subject in mentions:
                    for fact in self.facts_of[subject]:
                        token = said.get((subject, fact.relation))
                        if token is None:
                            token = (
                                chance.choice(self.answers_of[fact.relation])
                                if by_chance
                                else self.encode(fact.answer)[0]
                            )
                        written.append((len(places), token))
                    places.append((row, place))
                    subjects.append(self.number[subject])
                separator = chance.choice((" ", "\n"))
                if at >= width:
                    break
        return Batch(
            ids, is_answer, torch.tensor(places).reshape(-1, 2), torch.tensor(subjects),
            torch.tensor(written).reshape(-1, 2), inside,
        )  # fmt: skip

    def _draw(self, passage: texts.Passage, chance: random.Random) -> dict[tuple[str, str], int]:
        """Draw an answer for each fact of a passage; subjects that share one share the draw."""
        said: dict[tuple[str, str], int] = {}
        for piece in passage.pieces:
            if piece.fact is not None:
                token = chance.choice(self.answers_of[piece.fact.relation])
                said.setdefault((piece.fact.subject, piece.fact.relation), token)
                if passage.kind == "shared":
                    for other in passage.pieces:
                        if other.subject is not None:
                            said[other.subject, piece.fact.relation] = said[
                                piece.fact.subject, piece.fact.relation
                            ]
        return said


def packed(seed: int, rows: int) -> Iterator[list[list[texts.Passage]]]:
    """Yield so many rows of passages at a time, each long enough to fill a row of tokens."""
    stream = texts.passages(seed=seed)
    while True:
        yield [[next(stream) for _ in range(8)] for _ in range(rows)]

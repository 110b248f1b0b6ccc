"""Pairs of sentences that differ in the number of the subject, and the verbs that agree with each."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import ffnprobe as fp
from ffnprobe.errors import DataRefused, TokenNotFound

FILES = "*_test.jsonl"


@dataclass(frozen=True)
class Pair:
    """A sentence and the same with the other number, each with its verb."""

    kind: str
    prompt: str
    other: str
    answer: str
    rival: str


def read_pairs(folder: Path, *, seed: int) -> list[Pair]:
    """Read every file of a folder, shuffle each, and take from them in turn."""
    by_kind = []
    for path in sorted(folder.glob(FILES)):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        kind = path.name.removesuffix(FILES.lstrip("*"))
        pairs = [
            Pair(kind, row["clean_prefix"], row["patch_prefix"], row["clean_answer"], row["patch_answer"])
            for row in rows
        ]  # fmt: skip
        random.Random(seed).shuffle(pairs)
        by_kind.append(pairs)
    if not by_kind:
        raise DataRefused(f"{folder} has no pairs.", remedy=f"a folder with {FILES}")
    turns = range(max(map(len, by_kind)))
    return [pairs[turn] for turn in turns for pairs in by_kind if turn < len(pairs)]


def find_known(model: fp.Model, pairs: list[Pair]) -> Iterator[tuple[Pair, fp.Contrast]]:
    """Yield the pairs of one length in tokens that the model gets right, both ways."""
    seen: set[str] = set()
    for pair in pairs:
        if pair.prompt in seen:
            continue
        here, there = fp.run(model, [pair.prompt, pair.other])
        try:
            answer, rival = (model.vocab.one(text) for text in (pair.answer, pair.rival))
        except TokenNotFound:
            continue
        leads = [float(t.logits[-1, answer] - t.logits[-1, rival]) for t in (here, there)]
        if len(here) == len(there) and leads[0] > 0 > leads[1]:
            seen.add(pair.prompt)
            yield pair, fp.contrast_with(here, pair.answer, [there], answers=[pair.rival])

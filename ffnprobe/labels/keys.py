"""What a rule is made of: keys that a token has by itself, by what is before it, by where it stands.

A rule is a kind and a set of its keys; it fires where the token's key of that kind is in the set.

    class      the token is of a class (one kind for each class, with one key)
    position   where in the passage it stands: the ranges of `position_ranges`
    token      the token itself
    previous   the token before it
    after      the token itself, after a token of one class
    pair       the token before it and itself
    triple     the two tokens before it and itself

Kinds are numbered from the simplest to the most particular. Keys are those of the first half; a token of
the other half whose key was never seen has none, −1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ffnprobe.labels.classes import TokenClasses
from ffnprobe.labels.halves import Half, class_before, mark_classes

CLASSES = (
    "starts of words", "starts of sentences", "numbers", "punctuation", "capitals",
    "repeated tokens",
)  # fmt: skip
SETS = ("token", "previous", "after", "pair", "triple")
KINDS = (*CLASSES, "position", *SETS)
# A code is up to three tokens, each a number below 2^21 (0 where there is none before).
_BITS = 21


@dataclass(frozen=True, eq=False)
class Keys:
    """The keys of one kind: the code of each, and every token's key in both halves."""

    kind: str
    codes: np.ndarray
    found: np.ndarray
    held_out: np.ndarray
    # Keys of one rule are of one group: the class before, for the kind `after`; else all alike.
    groups: np.ndarray

    def __len__(self) -> int:
        return len(self.codes)

    def tokens(self, key: int) -> tuple[int, ...]:
        """Return the tokens a key is made of, in the order they are read; −1 where there is none."""
        code = int(self.codes[key])
        parts = [(code >> (_BITS * field)) & (2**_BITS - 1) for field in (2, 1, 0)]
        match self.kind:
            case "pair":
                return parts[1] - 1, parts[2]
            case "triple":
                return parts[0] - 1, parts[1] - 1, parts[2]
            case "previous":
                return (parts[2] - 1,)
            case _:
                return (parts[2],)


def make_keys(first: Half, second: Half, classes: TokenClasses) -> list[Keys]:
    """Number the keys of every kind over the first half, and look up those of the second."""
    marks = [mark_classes(half, classes) for half in (first, second)]
    found = [
        _number(name, *((~mark[name]).astype(np.int64) for mark in marks), only=[0])
        for name in CLASSES
    ]
    ranges = int(max(first.ranges.max(initial=0), second.ranges.max(initial=0))) + 1
    found.append(_number("position", first.ranges, second.ranges, only=range(ranges)))
    for kind in SETS:
        codes = (_encode(half, kind, classes) for half in (first, second))
        found.append(_number(kind, *codes))
    return found


def _encode(half: Half, kind: str, classes: TokenClasses) -> np.ndarray:
    """Write what a kind looks at around each token as one number."""
    tokens, previous, before = half.tokens, half.previous + 1, half.before + 1
    match kind:
        case "token":
            found = tokens
        case "previous":
            found = previous
        case "after":
            found = (class_before(half, classes) << _BITS) | tokens
        case "pair":
            found = (previous << _BITS) | tokens
        case _:
            found = (before << (2 * _BITS)) | (previous << _BITS) | tokens
    return np.asarray(found)


def _number(
    kind: str, first: np.ndarray, second: np.ndarray, *, only: Sequence[int] | None = None
) -> Keys:
    """Number codes from 0, those of the first half (or only some)."""
    codes = np.unique(first) if only is None else np.array(only, dtype=np.int64)
    numbers = []
    for half in (first, second):
        at = np.searchsorted(codes, half).clip(max=max(0, len(codes) - 1))
        numbers.append(
            np.where(codes[at] == half, at, -1) if len(codes) else np.full(len(half), -1)
        )
    groups = codes >> _BITS if kind == "after" else np.zeros(len(codes), dtype=np.int64)
    return Keys(kind, codes, numbers[0], numbers[1], groups)

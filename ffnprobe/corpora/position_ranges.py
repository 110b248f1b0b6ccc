"""Means by position: each of the first 32 tokens of a passage by itself, then ranges that double.

Position 0 is the first token of the text in the passage (BOS is not counted). Ranges are 32–63, 64–127 and
so on: what position does to activations it does early, and a mean for each of a thousand positions
would be most of a store.

>>> [first_of(100)[number] for number in (0, 1, 31, 32, 33)]
[0, 1, 31, 32, 64]
"""

import torch
from jaxtyping import Int
from torch import Tensor

SINGLE = 32


def first_of(length: int) -> list[int]:
    """List the first position of each range, for passages of at most `length` tokens."""
    firsts = list(range(min(SINGLE, length)))
    start = SINGLE
    while start < length:
        firsts.append(start)
        start *= 2
    return firsts


def number_ranges(length: int) -> Int[Tensor, " pos"]:
    """Number the range that each of `length` positions falls in."""
    firsts = torch.tensor(first_of(length))
    return torch.bucketize(torch.arange(length), firsts, right=True) - 1

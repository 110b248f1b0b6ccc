"""What is counted on the half that rules are found on: thresholds, strong tokens, means by token.

A token is strong for a neuron if its activation there is above zero and among the strongest 1 %: at least
the 99 % quantile, exact over the first `SAMPLED` tokens of the half. Strong tokens are kept as lists, two
bytes each; means by token, for the look-up the rules are compared with, for the `MOST_TOKENS` most
frequent tokens, the rest together. Both are bounded however long the corpus is.

A neuron's high activation is its 99.9 % quantile over the same tokens. A rare neuron is closed even there,
with less than `RARE` of its largest activation in the half: its high activation is the largest.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ffnprobe.labels.halves import Half
from ffnprobe.labels.watching import Columns

SAMPLED = 8192
HIGH = 0.001
RARE = 0.05
MOST_TOKENS = 2048


class Quantiles:
    """Each column's largest activations of a sample, kept while batches come in."""

    def __init__(self, columns: Columns, tokens: int, share: float) -> None:
        self.many = max(1, round(share * tokens))
        self.high = max(1, round(HIGH * tokens))
        self.largest = {
            layer: torch.full((columns.count(layer), self.many), -torch.inf)
            for layer in columns.layers
        }

    def see(self, layer: int, activations: Tensor, _: np.ndarray) -> None:
        """Let a batch compete."""
        joined = torch.cat([self.largest[layer], activations.mT.contiguous()], dim=1)
        self.largest[layer] = torch.topk(joined, self.many).values

    def thresholds(self, layer: int) -> Tensor:
        """The least activation that is strong, `[column]`."""
        return self.largest[layer][:, -1].clamp(min=torch.finfo(torch.float32).tiny)

    def highs(self, layer: int) -> Tensor:
        """The 99.9 % activation, `[column]`."""
        return self.largest[layer][:, self.high - 1]


def raise_rare(highs: Tensor, peaks: Tensor) -> Tensor:
    """Give rare neurons their largest activation as the high one.

    >>> raise_rare(torch.tensor([2.0, 0.01, -0.1]), torch.tensor([4.0, 3.0, -0.05])).tolist()
    [2.0, 3.0, -0.05000000074505806]
    """
    return torch.where(highs < RARE * peaks, peaks, highs)


@dataclass(frozen=True, eq=False)
class TokenRows:
    """Which row of the look-up each token has; the last is of all other tokens."""

    rows: np.ndarray
    counts: np.ndarray

    def __len__(self) -> int:
        return len(self.counts)


def choose_rows(half: Half, vocab: int) -> TokenRows:
    """Give the most frequent tokens of a half a row each; those seen once have none."""
    seen = np.bincount(half.tokens, minlength=vocab)
    order = np.argsort(-seen, kind="stable")[:MOST_TOKENS]
    order = order[seen[order] >= 2]
    rows = np.full(vocab, len(order), dtype=np.int64)
    rows[order] = np.arange(len(order))
    counts = np.r_[seen[order], seen.sum() - seen[order].sum()]
    return TokenRows(rows, counts)


class Collector:
    """Strong tokens and sums by token of every layer, kept while blocks come in."""

    def __init__(self, half: Half, columns: Columns, rows: TokenRows, tensors: dict[str, Tensor]):
        self.half, self.columns, self.rows = half, columns, rows
        self.thresholds = {layer: tensors[f"thresholds.{layer}"] for layer in columns.layers}
        self.tensors = tensors
        for layer in columns.layers:
            shape = (len(rows), columns.count(layer))
            tensors.setdefault(f"sums.{layer}", torch.zeros(shape))
            tensors.setdefault(f"peaks.{layer}", torch.full(shape[1:], -torch.inf))
        self._pairs: dict[int, list[tuple[Tensor, Tensor]]] = {}

    def see(self, layer: int, activations: Tensor, numbers: np.ndarray) -> None:
        """Count a batch."""
        rows = torch.from_numpy(self.rows.rows[self.half.tokens[numbers]])
        self.tensors[f"sums.{layer}"].index_add_(0, rows, activations)
        peaks = self.tensors[f"peaks.{layer}"]
        torch.maximum(peaks, activations.amax(dim=0), out=peaks)
        tokens, neurons = torch.nonzero(activations >= self.thresholds[layer], as_tuple=True)
        self._pairs.setdefault(layer, []).append((torch.from_numpy(numbers)[tokens], neurons))

    def close(self, block: int, first: int) -> None:
        """Pack a block's strong tokens, sorted by neuron: their numbers in the block, and how many each."""
        for layer, pairs in self._pairs.items():
            tokens, neurons = (torch.cat(each) for each in zip(*pairs, strict=True))
            order = torch.argsort(neurons, stable=True)
            # Two bytes a token, unless a single passage makes a block longer than that holds.
            packed = (tokens[order] - first).numpy()
            small = packed.max(initial=0) < 2**16
            packed = packed.astype(np.uint16).view(np.int16) if small else packed.astype(np.int32)
            counts = torch.bincount(neurons, minlength=self.columns.count(layer))
            self.tensors[f"strong.{layer}.{block}"] = torch.from_numpy(packed)
            self.tensors[f"counts.{layer}.{block}"] = counts.int()
        self._pairs = {}

    def strong(self, layer: int, firsts: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Unpack a layer's strong tokens: their numbers in the half, and the columns."""
        tokens, neurons = [], []
        for block, first in enumerate(firsts):
            packed = self.tensors[f"strong.{layer}.{block}"].numpy()
            packed = packed.view(np.uint16) if packed.dtype == np.int16 else packed
            counts = self.tensors[f"counts.{layer}.{block}"].numpy()
            tokens.append(packed.astype(np.int64) + first)
            neurons.append(np.repeat(np.arange(len(counts)), counts))
        return np.concatenate(tokens), np.concatenate(neurons)

"""What is counted of every column, neurons and controls: on the train texts, then on the held-out ones.

Train: thresholds, strong tokens, means by token. A token is strong for a neuron if its activation there is
above zero and among the strongest 1 %: at least the 99 % quantile, exact over the first `SAMPLED` tokens.
Strong tokens are kept as lists, two bytes each; means by token, for the look-up the rules are compared with,
for the `MOST_TOKENS` most frequent tokens, the rest together. Both are bounded however long the corpus is.
A neuron's high activation is its 99.9 % quantile over the same tokens. A rare neuron is closed even there,
with less than `RARE` of its largest activation: its high activation is the largest.

Held out: how often rules fire, are right, and go with the activation. Counts alone are kept: of tokens,
strong tokens, firings and hits, and sums of activations. From these follow precision, recall, F1, and the
correlation of the activation with what is predicted, which for a rule has two values (where it fires and
elsewhere) and for the look-up one for each token.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ffnprobe.labels.rules import Keys, Rules
from ffnprobe.labels.splits import Columns, Split, number_runs

SAMPLED = 8192
HIGH = 0.001
RARE = 0.05
MOST_TOKENS = 2048
# What is counted for each column of the held-out texts.
COUNTED = (
    "tokens", "strong", "sum", "squares", "fires", "hits", "sum_firing", "lookup_fires",
    "lookup_hits", "lookup_sum", "lookup_squares", "lookup_products",
)  # fmt: skip
# A layer's rules, to be looked up by key: for each kind, where each key's neurons begin, and the neurons.
LayerRules = list[tuple[np.ndarray, np.ndarray]]


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
        joined = torch.cat([self.largest[layer], activations.mT.contiguous()], dim=1)
        self.largest[layer] = torch.topk(joined, self.many).values

    def tensors(self) -> dict[str, Tensor]:
        """Name each layer's least activation that is strong, and its 99.9 % activation, `[column]`."""
        tensors = {}
        for layer, largest in self.largest.items():
            tensors[f"thresholds.{layer}"] = largest[:, -1].clamp(
                min=torch.finfo(torch.float32).tiny
            )
            tensors[f"highs.{layer}"] = largest[:, self.high - 1].clone()
        return tensors


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

    @classmethod
    def choose(cls, train: Split, vocab: int) -> "TokenRows":
        """Give the most frequent train tokens a row each; those seen once have none."""
        seen = np.bincount(train.tokens, minlength=vocab)
        order = np.argsort(-seen, kind="stable")[:MOST_TOKENS]
        order = order[seen[order] >= 2]
        rows = np.full(vocab, len(order), dtype=np.int64)
        rows[order] = np.arange(len(order))
        return cls(rows, np.r_[seen[order], seen.sum() - seen[order].sum()])


class Collector:
    """Strong tokens and sums by token of every layer, kept while blocks come in."""

    def __init__(self, train: Split, columns: Columns, rows: TokenRows, tensors: dict[str, Tensor]):
        self.train, self.columns, self.rows, self.tensors = train, columns, rows, tensors
        for layer in columns.layers:
            shape = (len(rows), columns.count(layer))
            tensors.setdefault(f"sums.{layer}", torch.zeros(shape))
            tensors.setdefault(f"peaks.{layer}", torch.full(shape[1:], -torch.inf))
        self.firsts = [int(train.firsts[block.start]) for block in train.blocks()]
        self._pairs: dict[int, list[tuple[Tensor, Tensor]]] = {}

    def see(self, layer: int, activations: Tensor, numbers: np.ndarray) -> None:
        rows = torch.from_numpy(self.rows.rows[self.train.tokens[numbers]])
        self.tensors[f"sums.{layer}"].index_add_(0, rows, activations)
        peaks = self.tensors[f"peaks.{layer}"]
        torch.maximum(peaks, activations.amax(dim=0), out=peaks)
        tokens, neurons = torch.nonzero(
            activations >= self.tensors[f"thresholds.{layer}"], as_tuple=True
        )
        self._pairs.setdefault(layer, []).append((torch.from_numpy(numbers)[tokens], neurons))

    def close(self, block: int) -> None:
        """Pack a block's strong tokens, sorted by neuron: their numbers in the block, and how many each."""
        for layer, pairs in self._pairs.items():
            tokens, neurons = (torch.cat(each) for each in zip(*pairs, strict=True))
            order = torch.argsort(neurons, stable=True)
            # Two bytes a token, unless a single passage makes a block longer than that holds.
            packed = (tokens[order] - self.firsts[block]).numpy()
            small = packed.max(initial=0) < 2**16
            packed = packed.astype(np.uint16).view(np.int16) if small else packed.astype(np.int32)
            counts = torch.bincount(neurons, minlength=self.columns.count(layer))
            self.tensors[f"strong.{layer}.{block}"] = torch.from_numpy(packed)
            self.tensors[f"counts.{layer}.{block}"] = counts.int()
        self._pairs = {}

    def strong(self, layer: int) -> tuple[np.ndarray, np.ndarray]:
        """Unpack a layer's strong tokens: their numbers in the split, and the columns."""
        tokens, neurons = [], []
        for block, first in enumerate(self.firsts):
            packed = self.tensors[f"strong.{layer}.{block}"].numpy()
            packed = packed.view(np.uint16) if packed.dtype == np.int16 else packed
            counts = self.tensors[f"counts.{layer}.{block}"].numpy()
            tokens.append(packed.astype(np.int64) + first)
            neurons.append(np.repeat(np.arange(len(counts)), counts))
        return np.concatenate(tokens), np.concatenate(neurons)


def index_rules(rules: Rules, keys: Sequence[Keys]) -> LayerRules:
    """Sort a layer's rules by kind and key."""
    kinds = rules.kinds[rules.neurons]
    indexed = []
    for number, each in enumerate(keys):
        mine = kinds == number
        order = np.argsort(rules.keys[mine], kind="stable")
        counts = np.bincount(rules.keys[mine], minlength=len(each))
        indexed.append((np.r_[0, np.cumsum(counts)], rules.neurons[mine][order]))
    return indexed


def find_firings(
    rules: LayerRules, keys: Sequence[Keys], numbers: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Find where rules fire: the tokens, counted in the batch, and the neurons."""
    tokens, neurons = [], []
    for (firsts, mine), each in zip(rules, keys, strict=True):
        if not len(mine):
            continue
        key = each.held_out[numbers]
        keyed = np.flatnonzero(key >= 0)
        starts, sizes = firsts[key[keyed]], np.diff(firsts)[key[keyed]]
        tokens.append(np.repeat(keyed, sizes))
        neurons.append(mine[np.repeat(starts, sizes) + number_runs(sizes)])
    none = np.zeros(0, dtype=np.int64)
    return np.concatenate([none, *tokens]), np.concatenate([none, *neurons])


class Scorer:
    """Counts of every layer's rules on the held-out texts, kept while blocks come in."""

    def __init__(
        self,
        held_out: Split,
        keys: Sequence[Keys],
        rows: TokenRows,
        rules: dict[int, Rules],
        tensors: dict[str, Tensor],
    ) -> None:
        self.held_out, self.keys, self.rows = held_out, keys, rows
        self.rules = {layer: index_rules(each, keys) for layer, each in rules.items()}
        self.tensors = tensors
        for layer in rules:
            shape = (len(COUNTED), len(tensors[f"thresholds.{layer}"]))
            tensors.setdefault(f"counted.{layer}", torch.zeros(shape, dtype=torch.float64))

    def see(self, layer: int, activations: Tensor, numbers: np.ndarray) -> None:
        tensors, columns = self.tensors, activations.shape[1]
        is_strong = activations >= tensors[f"thresholds.{layer}"]
        tokens, neurons = (
            torch.from_numpy(each) for each in find_firings(self.rules[layer], self.keys, numbers)
        )
        fired = activations[tokens, neurons].double()
        rows = torch.from_numpy(self.rows.rows[self.held_out.tokens[numbers]])
        predicted = tensors[f"means.{layer}"][rows].float()
        is_called = predicted >= tensors[f"calls.{layer}"]
        counts = (
            torch.full((columns,), len(numbers)),
            is_strong.sum(dim=0),
            activations.sum(dim=0),
            (activations * activations).sum(dim=0),
            torch.bincount(neurons, minlength=columns),
            torch.bincount(neurons, is_strong[tokens, neurons].double(), minlength=columns),
            torch.bincount(neurons, fired, minlength=columns),
            is_called.sum(dim=0),
            (is_called & is_strong).sum(dim=0),
            predicted.sum(dim=0),
            (predicted * predicted).sum(dim=0),
            (predicted * activations).sum(dim=0),
        )
        tensors[f"counted.{layer}"] += torch.stack([each.double() for each in counts])


def read_scores(counted: Tensor) -> dict[str, np.ndarray]:
    """Turn counts `[counted column]` into precision, recall, F1 and correlations."""
    c = dict(zip(COUNTED, counted.numpy(), strict=True))
    n, mean = c["tokens"], c["sum"] / c["tokens"]
    spread = c["squares"] / n - mean**2
    share = c["fires"] / n
    covariance = c["sum_firing"] / n - mean * share
    looked = c["lookup_sum"] / n
    return {
        "precision": _divide(c["hits"], c["fires"]),
        "recall": _divide(c["hits"], c["strong"]),
        "f1": _divide(2 * c["hits"], c["fires"] + c["strong"]),
        "correlation": _correlate(covariance, spread, share * (1 - share)),
        "lookup_f1": _divide(2 * c["lookup_hits"], c["lookup_fires"] + c["strong"]),
        "lookup_correlation": _correlate(
            c["lookup_products"] / n - mean * looked, spread, c["lookup_squares"] / n - looked**2
        ),
        "strong": c["strong"],
        "fires": c["fires"],
    }


def _divide(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    """Divide; what was never tried scores 0."""
    return np.where(bottom > 0, top / np.where(bottom > 0, bottom, 1), 0.0)


def _correlate(covariance: np.ndarray, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    product = np.sqrt((one * other).clip(min=0))
    # Rounding leaves a spread of nothing a little above nothing.
    is_spread = product > 1e-12
    return np.where(is_spread, covariance / np.where(is_spread, product, 1.0), 0.0).clip(-1, 1)

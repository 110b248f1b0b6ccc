"""Score rules on the other half: how often they fire, are right, and go with the activation.

Counts alone are kept: of tokens, strong tokens, firings and hits, and sums of activations. From these
follow precision, recall, F1, and the correlation of the activation with what is predicted, which for a
rule has two values (where it fires and elsewhere) and for the look-up one for each token.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ffnprobe.labels.first_half import TokenRows
from ffnprobe.labels.halves import Half
from ffnprobe.labels.keys import Keys
from ffnprobe.labels.rules import Rules

# What is counted for each column.
COUNTED = (
    "tokens", "strong", "sum", "squares", "fires", "hits", "sum_firing", "lookup_fires",
    "lookup_hits", "lookup_sum", "lookup_squares", "lookup_products",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class LayerRules:
    """A layer's rules, ready to be looked up by key: for each kind, the neurons of each key."""

    firsts: tuple[np.ndarray, ...]
    neurons: tuple[np.ndarray, ...]


def index_rules(rules: Rules, keys: Sequence[Keys]) -> LayerRules:
    """Sort a layer's rules by kind and key."""
    kinds = rules.kinds[rules.neurons]
    firsts, neurons = [], []
    for number, each in enumerate(keys):
        mine = kinds == number
        order = np.argsort(rules.keys[mine], kind="stable")
        counts = np.bincount(rules.keys[mine], minlength=len(each))
        firsts.append(np.r_[0, np.cumsum(counts)])
        neurons.append(rules.neurons[mine][order])
    return LayerRules(tuple(firsts), tuple(neurons))


def find_firings(
    rules: LayerRules, keys: Sequence[Keys], numbers: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Find where rules fire: the tokens, counted in the batch, and the neurons."""
    tokens, neurons = [], []
    for firsts, mine, each in zip(rules.firsts, rules.neurons, keys, strict=True):
        if not len(mine):
            continue
        key = each.held_out[numbers]
        known = np.flatnonzero(key >= 0)
        starts, sizes = firsts[key[known]], np.diff(firsts)[key[known]]
        tokens.append(np.repeat(known, sizes))
        inside = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        neurons.append(mine[np.repeat(starts, sizes) + inside])
    if not tokens:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    return np.concatenate(tokens), np.concatenate(neurons)


class Scorer:
    """Counts of every layer's rules on the other half, kept while blocks come in."""

    def __init__(
        self,
        half: Half,
        keys: Sequence[Keys],
        rows: TokenRows,
        rules: dict[int, LayerRules],
        tensors: dict[str, Tensor],
    ) -> None:
        self.half, self.keys, self.rows, self.rules, self.tensors = half, keys, rows, rules, tensors
        for layer in rules:
            shape = (len(COUNTED), len(tensors[f"thresholds.{layer}"]))
            tensors.setdefault(f"counted.{layer}", torch.zeros(shape, dtype=torch.float64))

    def see(self, layer: int, activations: Tensor, numbers: np.ndarray) -> None:
        """Count a batch."""
        tensors, columns = self.tensors, activations.shape[1]
        is_strong = activations >= tensors[f"thresholds.{layer}"]
        tokens, neurons = (
            torch.from_numpy(each) for each in find_firings(self.rules[layer], self.keys, numbers)
        )
        fired = activations[tokens, neurons].double()
        rows = torch.from_numpy(self.rows.rows[self.half.tokens[numbers]])
        predicted = tensors[f"means.{layer}"][rows].float()
        is_called = predicted >= tensors[f"calls.{layer}"]
        found = (
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
        tensors[f"counted.{layer}"] += torch.stack([each.double() for each in found])


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

"""The distribution of numbers: a histogram with exact shares, counted batch by batch.

The shares are counted from every number, not from the histogram, whose bins are for drawing.

>>> import torch
>>> tally = Tally.of(torch.tensor([[-0.5, 0.5, 2.0, -3.5]]), bump=find_bump("swish"))
>>> tally.below_zero.tolist(), tally.in_bump.tolist()
([0.5], [0.25])
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd
import torch
from einops import rearrange, reduce
from jaxtyping import Float, Int
from torch import Tensor

from analyses.lab.activations import Bump, find_bump
from ffnprobe.corpora import statistics
from ffnprobe.corpora.scans import Scan
from ffnprobe.errors import OptionRefused
from ffnprobe.models.model import Model
from ffnprobe.tracing.runs import run

EDGES = torch.linspace(-8, 8, 161, dtype=torch.float64)
# Small negatives: closer to zero than Swish's minimum, further than rounding errors.
SMALL = (-0.3, -0.01)
TEXTS_AT_ONCE = 128


@dataclass(frozen=True)
class Tally:
    """Counts of several groups of numbers (one a layer), which can be added to one another."""

    counts: Int[Tensor, "group bin"]
    numbers: Int[Tensor, " group"]
    sums: Float[Tensor, " group"]
    squares: Float[Tensor, " group"]
    negative: Int[Tensor, " group"]
    small: Int[Tensor, " group"]
    bumped: Int[Tensor, " group"]
    bump: Bump | None

    @classmethod
    def of(cls, values: Float[Tensor, "group number"], *, bump: Bump | None) -> "Tally":
        """Count the numbers of each group."""
        exact = values.double()
        low, high, bins = float(EDGES[0]), float(EDGES[-1]), len(EDGES) - 1
        counts = torch.stack([torch.histc(row, bins, low, high).long() for row in exact])
        bumped = torch.zeros_like(exact, dtype=torch.bool) if bump is None else bump.holds(exact)
        return cls(
            counts=counts,
            numbers=torch.full((len(exact),), exact.shape[1]),
            sums=exact.sum(-1),
            squares=exact.square().sum(-1),
            negative=(exact < 0).sum(-1),
            small=((exact >= SMALL[0]) & (exact <= SMALL[1])).sum(-1),
            bumped=bumped.sum(-1),
            bump=bump,
        )

    def __add__(self, other: "Tally") -> "Tally":
        fields = ("counts", "numbers", "sums", "squares", "negative", "small", "bumped")
        added = {name: getattr(self, name) + getattr(other, name) for name in fields}
        return Tally(**added, bump=self.bump)

    @property
    def below_zero(self) -> Float[Tensor, " group"]:
        """The share of each group's numbers that are negative."""
        return self.negative / self.numbers

    @property
    def small_negative(self) -> Float[Tensor, " group"]:
        """The share that is negative but small (`SMALL`)."""
        return self.small / self.numbers

    @property
    def in_bump(self) -> Float[Tensor, " group"]:
        """The share that falls in the activation function's bump; not a number if it has none."""
        return torch.where(
            torch.tensor(self.bump is not None), self.bumped / self.numbers, math.nan
        )

    @property
    def mean(self) -> Float[Tensor, " group"]:
        return self.sums / self.numbers

    @property
    def deviation(self) -> Float[Tensor, " group"]:
        """The standard deviation of each group."""
        return (self.squares / self.numbers - self.mean.square()).clamp(min=0).sqrt()

    @property
    def density(self) -> Float[Tensor, "group bin"]:
        """Each bin's share of its group, per unit of width."""
        width = float(EDGES[1] - EDGES[0])
        return (self.counts / rearrange(self.numbers, "group -> group 1")).div(width)

    def in_bump_if_normal(self) -> Float[Tensor, " group"]:
        """The share in the bump of a normal distribution with the same mean and deviation."""
        if self.bump is None:
            return torch.full_like(self.mean, math.nan)
        below = [
            torch.special.ndtr((edge - self.mean) / self.deviation)
            for edge in (self.bump.low, self.bump.high)
        ]
        return torch.sub(below[1], below[0])

    def table(self, names: Sequence[str], *, group: str) -> pd.DataFrame:
        """Table each group's spread and shares."""
        return pd.DataFrame(
            {
                group: list(names),
                "numbers": self.numbers.tolist(),
                "mean": self.mean.tolist(),
                "deviation": self.deviation.tolist(),
                "share_below_zero": self.below_zero.tolist(),
                "share_in_bump": self.in_bump.tolist(),
            }
        )


def bump_of(activation: str) -> Bump | None:
    """Find the bump of a model's activation function, by the name its configuration has."""
    return find_bump("swish" if activation == "silu" else activation)


def table_scan(scan: Scan, activation: str) -> pd.DataFrame:
    """Table, for each layer of a scan, the share at or below zero and bounds of the share in the bump.

    A score is in the bump where its activation is at most half the minimum. A scan keeps activations
    in bins, one of which holds that value: without it the share is at least, with it at most.
    """
    bump = bump_of(activation)
    counts = reduce(scan.statistics.histogram, "layer neuron bin -> layer bin", "sum").double()
    shares = counts / reduce(counts, "layer bin -> layer 1", "sum")
    ends = torch.tensor(statistics.EDGES, dtype=torch.float64)
    half = -torch.inf if bump is None else bump.depth / 2
    firing = reduce(scan.statistics.firing_rate, "layer neuron -> layer", "mean")
    return pd.DataFrame(
        {
            "layer": [f"L{layer}" for layer in range(len(shares))],
            "share_below_zero": (1 - firing).tolist(),
            "in_bump_at_least": shares[:, ends[1:] <= half].sum(-1).tolist(),
            "in_bump_at_most": shares[:, ends[:-1] < half].sum(-1).tolist(),
        }
    )


def tally_scores(model: Model, texts: Iterable[str]) -> Tally:
    """Count a model's scores over texts, one group a layer; a BOS is left out."""
    bump, chosen = bump_of(model.config.activation), list(texts)
    if not chosen:
        raise OptionRefused("there are no texts to run.", remedy="give at least one line of text")
    total = None
    for start in range(0, len(chosen), TEXTS_AT_ONCE):
        traces = run(model, chosen[start : start + TEXTS_AT_ONCE], patterns=False)
        # What goes through the nonlinearity: the gate's score, where neurons have gates.
        asked = [t.scores if t.gate_scores is None else t.gate_scores for t in traces]
        words = [one[:, int(t.has_bos) :] for one, t in zip(asked, traces, strict=True)]
        scores = torch.cat(words, dim=1)
        flat = rearrange(scores, "layer pos neuron -> layer (pos neuron)")
        tally = Tally.of(flat, bump=bump)
        total = tally if total is None else total + tally
    return total  # type: ignore[return-value]

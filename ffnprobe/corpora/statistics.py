"""All that is known of every neuron over some texts, and how two such accounts become one.

Merging is associative: counts, histograms and examples exactly, sums in float64 to rounding. Blocks
are always merged in the corpus's order, so that the same corpus gives the same bytes.

Moments: a block's sums are taken around a pivot near the mean, so that small spreads survive large means;
then, as central sums M_p = Σ (a − mean)^p, blocks merge pairwise (δ the difference of the means):

    M2 = M2a + M2b + δ² na nb / n
    M3 = M3a + M3b + δ³ na nb (na − nb) / n² + 3 δ (na M2b − nb M2a) / n
    M4 = M4a + M4b + δ⁴ na nb (na² − na nb + nb²) / n³
         + 6 δ² (na² M2b + nb² M2a) / n² + 4 δ (na M3b − nb M3a) / n

Population moments, as scipy's: a normal distribution has kurtosis 3. Where nothing varies, skew and
kurtosis are not a number.

Histogram: the same bins for every neuron, model and corpus, two an octave. An activation's size falls in
[2^e, 1.5·2^e) or [1.5·2^e, 2^(e+1)) for e from −6 to 5; smaller sizes share one bin, larger ones another.
Activations below zero have the same bins mirrored: 26 on each side, `EDGES` between them; zero itself is in
the bin below it, so that the bins of the upper side count what is above zero.

>>> count_bins(torch.tensor([[-0.17], [0.2], [100.0]])).nonzero().tolist()
[[0, 18], [0, 34], [0, 51]]
>>> EDGES[18:20], EDGES[34:36], EDGES[51:]
((-0.1875, -0.125), (0.1875, 0.25), (64.0, inf))

Positions: each of the first 32 tokens of a passage (BOS is not counted) has a mean by itself, then ranges
that double, 32–63, 64–127 and so on: a mean for each of a thousand positions would be most of a store.

>>> [first_of(100)[number] for number in (0, 1, 31, 32, 33)]
[0, 1, 31, 32, 64]
"""

from dataclasses import dataclass, fields
from typing import Any

import torch
from einops import einsum, rearrange, reduce
from jaxtyping import Float, Float64, Int, Int64
from torch import Tensor

from ffnprobe.corpora.peaks import SAMPLE, Occurrences, merge_peaks, merge_samples, no_occurrences

SINGLE = 32  # positions with a mean of their own
_SMALLEST, _LARGEST = -6, 6
# float32: 23 bits of digits below the exponent; two bins an octave keep the first digit.
_DROPPED, _BIAS = 22, 127
_LOW, _HIGH = 2 * (_SMALLEST + _BIAS) - 1, 2 * (_LARGEST + _BIAS)
# Rows of activations whose bits stay in a core's cache while they are turned into bins.
_ROWS_IN_CACHE = 32
SIDE = _HIGH - _LOW + 1
BINS = 2 * SIDE
_SIZES = [step * 2.0**power for power in range(_SMALLEST, _LARGEST) for step in (1.0, 1.5)]
_UPPER = [*_SIZES, 2.0**_LARGEST, float("inf")]
EDGES = (*(-size for size in reversed(_UPPER)), 0.0, *_UPPER)
PerNeuron = Float64[Tensor, "layer neuron"]


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


def count_bins(activations: Float[Tensor, "row neuron"]) -> Int[Tensor, "neuron bin"]:
    """Count each neuron's activations in each bin, from the lowest bin to the highest.

    The bin is read off the number's bits, exponent and first digit: a search among edges for each
    activation would cost a third of the forward pass.
    """
    neurons = activations.shape[-1]
    bits = activations.contiguous().view(torch.int32)
    bins = torch.empty_like(bits)
    first = torch.arange(neurons, dtype=torch.int32, device=bits.device) * BINS - _LOW
    for part, own in zip(
        torch.split(bits, _ROWS_IN_CACHE), torch.split(bins, _ROWS_IN_CACHE), strict=True
    ):
        torch.bitwise_and(part, 0x7FFFFFFF, out=own)
        own.bitwise_right_shift_(_DROPPED).clamp_(_LOW, _HIGH)
        # As integers too, the numbers above zero are above zero.
        own.add_(part.clamp(0, 1), alpha=SIDE).add_(first)
    counts = torch.bincount(rearrange(bins, "row neuron -> (row neuron)"), minlength=neurons * BINS)
    counts = rearrange(counts, "(neuron side bin) -> neuron side bin", neuron=neurons, side=2)
    return torch.cat([counts[:, 0].flip(-1), counts[:, 1]], dim=-1)


@dataclass(frozen=True, eq=False)
class CentralMoments:
    """How many activations, their means, and the sums of their differences' powers."""

    count: int
    mean: PerNeuron
    second: PerNeuron
    third: PerNeuron
    fourth: PerNeuron

    @property
    def variance(self) -> PerNeuron:
        return self.second / self.count

    @property
    def skew(self) -> PerNeuron:
        return self.third / self.count / self.variance**1.5

    @property
    def kurtosis(self) -> PerNeuron:
        return self.fourth / self.count / self.variance**2


def centre_sums(
    count: int, pivot: PerNeuron, sums: Float64[Tensor, "power layer neuron"]
) -> CentralMoments:
    """Turn sums of (a − pivot)^p, p from 1 to 4, into central moments."""
    first, second, third, fourth = sums
    off = first / count
    return CentralMoments(
        count=count,
        mean=pivot + off,
        # Rounding may leave a spread of nothing a little below nothing.
        second=(second - off * first).clamp(min=0),
        third=third - 3 * off * second + 2 * off**2 * first,
        fourth=(fourth - 4 * off * third + 6 * off**2 * second - 3 * off**3 * first).clamp(min=0),
    )


def merge_moments(a: CentralMoments, b: CentralMoments) -> CentralMoments:
    """Find the moments of both sets together."""
    if a.count == 0 or b.count == 0:
        return a if b.count == 0 else b
    na, nb, n = a.count, b.count, a.count + b.count
    gap = b.mean - a.mean
    square = gap * gap
    return CentralMoments(
        count=n,
        mean=a.mean + gap * (nb / n),
        second=a.second + b.second + square * (na * nb / n),
        third=a.third + b.third + square * gap * (na * nb * (na - nb) / n**2)
        + 3 * gap * (na * b.second - nb * a.second) / n,
        fourth=a.fourth + b.fourth
        + square * square * (na * nb * (na**2 - na * nb + nb**2) / n**3)
        + 6 * square * (na**2 * b.second + nb**2 * a.second) / n**2
        + 4 * gap * (na * b.third - nb * a.third) / n,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Statistics:
    """Moments, firing, histogram, means by position, extreme examples and some drawn at random."""

    moments: CentralMoments
    histogram: Int64[Tensor, "layer neuron bin"]
    position_sums: Float64[Tensor, "layer range neuron"]
    position_counts: Int64[Tensor, " range"]
    strongest: Occurrences
    weakest: Occurrences
    sample: Occurrences

    @property
    def above(self) -> Int64[Tensor, "layer neuron"]:
        """How many activations were above zero."""
        return reduce(self.histogram[..., SIDE:], "layer neuron bin -> layer neuron", "sum")

    @property
    def firing_rate(self) -> Float64[Tensor, "layer neuron"]:
        """The share of activations above zero."""
        return self.above.double() / self.moments.count

    @property
    def position_means(self) -> Float64[Tensor, "layer range neuron"]:
        """The mean in each range of positions; not a number where no passage is so long."""
        return self.position_sums / self.position_counts[:, None]

    @property
    def position_share(self) -> Float64[Tensor, "layer neuron"]:
        """The share of the variance that the position alone explains; 0 where nothing varies."""
        gaps = (self.position_means - self.moments.mean[:, None]).nan_to_num() ** 2
        between = einsum(
            self.position_counts.double(), gaps, "range, layer range neuron -> layer neuron"
        )
        return torch.where(self.moments.second > 0, between / self.moments.second, 0.0)

    def tensors(self) -> dict[str, Tensor]:
        """Name every tensor, as a store keeps them."""
        named: dict[str, Tensor] = {}
        for name, part in vars(self).items():
            if isinstance(part, Tensor):
                named[name] = part
            else:
                named |= {f"{name}.{own}": each for own, each in vars(part).items()}
        del named["moments.count"]  # a number, which the store says in words
        return named


def from_tensors(tensors: dict[str, Tensor], count: int) -> Statistics:
    """Put the tensors of a store together again."""
    values: dict[str, Any] = {**tensors, "moments.count": count}
    for name in ("moments", "strongest", "weakest", "sample"):
        kind = CentralMoments if name == "moments" else Occurrences
        values[name] = kind(**{each.name: values[f"{name}.{each.name}"] for each in fields(kind)})
    return Statistics(**{each.name: values[each.name] for each in fields(Statistics)})


def no_statistics(layers: int, neurons: int, *, k: int, length: int) -> Statistics:
    """Start from nothing, for passages of at most `length` tokens."""
    ranges, peaks = len(first_of(length)), no_occurrences(layers, neurons, k)
    none = torch.zeros(layers, neurons, dtype=torch.float64)
    return Statistics(
        moments=CentralMoments(0, none, none, none, none),
        histogram=torch.zeros(layers, neurons, BINS, dtype=torch.int64),
        position_sums=torch.zeros(layers, ranges, neurons, dtype=torch.float64),
        position_counts=torch.zeros(ranges, dtype=torch.int64),
        strongest=peaks,
        weakest=peaks,
        sample=no_occurrences(layers, neurons, SAMPLE, is_sample=True),
    )


def merge(a: Statistics, b: Statistics) -> Statistics:
    """Find the statistics of both sets of texts together."""
    return Statistics(
        moments=merge_moments(a.moments, b.moments),
        histogram=a.histogram + b.histogram,
        position_sums=a.position_sums + b.position_sums,
        position_counts=a.position_counts + b.position_counts,
        strongest=merge_peaks(a.strongest, b.strongest, by="activations", sign=1),
        weakest=merge_peaks(a.weakest, b.weakest, by="scores", sign=-1),
        sample=merge_samples(a.sample, b.sample),
    )

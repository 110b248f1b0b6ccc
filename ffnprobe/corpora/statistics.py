"""All that is known of every neuron over some texts, and how two such accounts become one.

Merging is associative: counts, histograms and examples exactly, sums in float64 to rounding. Blocks
are always merged in the corpus's order, so that the same corpus gives the same bytes.
"""

from dataclasses import dataclass, fields

import torch
from einops import einsum, reduce
from jaxtyping import Float64, Int64
from torch import Tensor

from ffnprobe.corpora.histograms import BINS, SIDE
from ffnprobe.corpora.moments import CentralMoments, merge_moments, no_moments
from ffnprobe.corpora.peaks import Peaks, merge_peaks, no_peaks
from ffnprobe.corpora.position_ranges import first_of
from ffnprobe.corpora.samples import Sample, merge_samples, no_sample

_MOMENTS = ("mean", "second", "third", "fourth")
_PEAKS = ("activations", "scores", "passages", "texts", "positions", "windows")


@dataclass(frozen=True, eq=False)
class Statistics:
    """Moments, firing, histogram, means by position, extreme examples and some drawn at random."""

    moments: CentralMoments
    histogram: Int64[Tensor, "layer neuron bin"]
    position_sums: Float64[Tensor, "layer range neuron"]
    position_counts: Int64[Tensor, " range"]
    strongest: Peaks
    weakest: Peaks
    sample: Sample

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
        named = {
            "histogram": self.histogram,
            "position_sums": self.position_sums,
            "position_counts": self.position_counts,
        }
        named |= {f"moments.{name}": getattr(self.moments, name) for name in _MOMENTS}
        for side, peaks in (("strongest", self.strongest), ("weakest", self.weakest)):
            named |= {f"{side}.{name}": getattr(peaks, name) for name in _PEAKS}
        return named | {f"sample.{name}": each for name, each in vars(self.sample).items()}


def from_tensors(tensors: dict[str, Tensor], count: int) -> Statistics:
    """Put the tensors of a store together again."""
    moments = CentralMoments(count, *(tensors[f"moments.{name}"] for name in _MOMENTS))
    strongest, weakest = (
        Peaks(**{name: tensors[f"{side}.{name}"] for name in _PEAKS})
        for side in ("strongest", "weakest")
    )
    return Statistics(
        moments=moments,
        histogram=tensors["histogram"],
        position_sums=tensors["position_sums"],
        position_counts=tensors["position_counts"],
        strongest=strongest,
        weakest=weakest,
        sample=Sample(**{each.name: tensors[f"sample.{each.name}"] for each in fields(Sample)}),
    )


def no_statistics(layers: int, neurons: int, *, k: int, length: int) -> Statistics:
    """Start from nothing, for passages of at most `length` tokens."""
    ranges = len(first_of(length))
    peaks = no_peaks(layers, neurons, k)
    return Statistics(
        moments=no_moments(layers, neurons),
        histogram=torch.zeros(layers, neurons, BINS, dtype=torch.int64),
        position_sums=torch.zeros(layers, ranges, neurons, dtype=torch.float64),
        position_counts=torch.zeros(ranges, dtype=torch.int64),
        strongest=peaks,
        weakest=peaks,
        sample=no_sample(layers, neurons),
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

"""Mean, variance, skew and kurtosis of activations, in float64, merged without losing digits.

A block's sums are taken around a pivot near the mean, so that small spreads survive large means;
then, as central sums M_p = Σ (a − mean)^p, blocks merge pairwise (δ the difference of the means):

    M2 = M2a + M2b + δ² na nb / n
    M3 = M3a + M3b + δ³ na nb (na − nb) / n² + 3 δ (na M2b − nb M2a) / n
    M4 = M4a + M4b + δ⁴ na nb (na² − na nb + nb²) / n³
         + 6 δ² (na² M2b + nb² M2a) / n² + 4 δ (na M3b − nb M3a) / n

Population moments, as scipy's: a normal distribution has kurtosis 3. Where nothing varies, skew and
kurtosis are not a number.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

PerNeuron = Float64[Tensor, "layer neuron"]


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


def no_moments(layers: int, neurons: int) -> CentralMoments:
    """Start from nothing."""
    none = torch.zeros(layers, neurons, dtype=torch.float64)
    return CentralMoments(0, none, none, none, none)

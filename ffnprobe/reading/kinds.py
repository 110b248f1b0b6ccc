"""Kinds of neuron, from weights alone: a label for the numbers, which are always shown with it.

    entropy       a long answer of a late layer that lies in the unembedding's null space: it works
                  through the final scale, and its token lists mean nothing
    prediction    kurtosis above the threshold, skew positive: promotes a few tokens strongly
    suppression   kurtosis above the threshold, skew negative: suppresses a few tokens strongly
    partition     much variance, low kurtosis: pushes one large set of tokens against another
    unlabelled    none of these

The first that fits is the kind. Every threshold is an argument of `Thresholds`; the defaults
follow published observations on GPT-2, and other models may need others.

>>> shape = Shape(variance=0.001, skew=2.0, kurtosis=11.0, null_space=0.1, relative_norm=1.0,
...               depth=0.5, d_model=768)
>>> name_kind(shape)
'prediction'
>>> name_kind(shape, Thresholds(kurtosis=12))
'unlabelled'
"""

import math
from dataclasses import dataclass

KINDS = ("entropy", "prediction", "suppression", "partition", "unlabelled")


@dataclass(frozen=True)
class Thresholds:
    """Where one kind of neuron ends and another begins.

    kurtosis            prediction and suppression lie above it (a normal distribution has 3)
    null_space          entropy: the least share of the answer's norm in the null space; where the
                        null space is large (a vocabulary smaller than d_model) the share must also
                        be four standard deviations above that of a random direction
    relative_norm       entropy: the least norm, in medians of the answers of the layer
    late                entropy: the least depth (0 the first layer, 1 the last)
    variance            partition: the least variance, in units of 1/d_model, which is what
                        a random direction has
    partition_kurtosis  partition: the greatest kurtosis
    role                the least |cos(question, answer)| of a neuron that strengthens or erases
    frequency           the least |correlation| of an answer with the frequency of tokens
    position            positional: how much of the variance its position explains, above this

    >>> import ffnprobe as fp
    >>> fp.read(fp.load("pocket"), "L3N361", thresholds=fp.Thresholds(kurtosis=4))
    Reading(L3N361, prediction)
    """

    kurtosis: float = 10.0
    null_space: float = 0.35
    relative_norm: float = 1.25
    late: float = 0.75
    variance: float = 3.0
    partition_kurtosis: float = 4.0
    role: float = 0.5
    frequency: float = 0.5
    position: float = 0.9


@dataclass(frozen=True)
class Shape:
    """The numbers a kind is read from."""

    variance: float
    skew: float
    kurtosis: float
    null_space: float
    relative_norm: float
    depth: float
    d_model: int
    null_part: float = 1 / 64  # of all directions, those of the null space

    @property
    def chance(self) -> float:
        """The share of the null space that a random direction stays under: four deviations up."""
        part = self.null_part
        return math.sqrt(min(1.0, part + 4 * math.sqrt(2 * part * (1 - part) / self.d_model)))


def name_kind(shape: Shape, thresholds: Thresholds | None = None) -> str:
    """Name the kind of a neuron; numbers that are not defined fit no kind."""
    t = Thresholds() if thresholds is None else thresholds
    is_long_and_late = shape.relative_norm >= t.relative_norm and shape.depth >= t.late
    if is_long_and_late and shape.null_space >= max(t.null_space, shape.chance):
        return "entropy"
    if shape.kurtosis > t.kurtosis:
        return "prediction" if shape.skew > 0 else "suppression"
    if shape.variance * shape.d_model >= t.variance and shape.kurtosis <= t.partition_kurtosis:
        return "partition"
    return "unlabelled"

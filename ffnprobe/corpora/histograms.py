"""A histogram of activations with fixed bins: the same for every neuron, model and corpus.

Bins are by size, two an octave: an activation's size falls in [2^e, 1.5·2^e) or [1.5·2^e, 2^(e+1))
for e from −6 to 5; smaller sizes share one bin, larger ones another. Activations below zero have the
same bins mirrored: 26 on each side, `EDGES` between them; zero itself is in the bin below it, so
that the bins of the upper side count what is above zero.

The bin is read off the number's bits, exponent and first digit, since a search among edges for each
activation would cost a third of the forward pass.

>>> count_bins(torch.tensor([[-0.17], [0.2], [100.0]])).nonzero().tolist()
[[0, 18], [0, 34], [0, 51]]
>>> EDGES[18:20], EDGES[34:36], EDGES[51:]
((-0.1875, -0.125), (0.1875, 0.25), (64.0, inf))
"""

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

_SMALLEST, _LARGEST = -6, 6
# float32: 23 bits of digits below the exponent; two bins an octave keep the first digit.
_DROPPED, _BIAS = 22, 127
_LOW, _HIGH = 2 * (_SMALLEST + _BIAS) - 1, 2 * (_LARGEST + _BIAS)
# Rows of activations whose bits stay in a core's cache while they are turned into bins.
_ROWS_IN_CACHE = 32
SIDE = _HIGH - _LOW + 1
BINS = 2 * SIDE
_SIZES = [step * 2.0**power for power in range(_SMALLEST, _LARGEST) for step in (1.0, 1.5)]
_SIZES = [0.0, *_SIZES, 2.0**_LARGEST, float("inf")]
_ENDS = [*(-size for size in reversed(_SIZES[1:])), *_SIZES]
EDGES = tuple(_ENDS)


def count_bins(activations: Float[Tensor, "row neuron"]) -> Int[Tensor, "neuron bin"]:
    """Count each neuron's activations in each bin, from the lowest bin to the highest."""
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

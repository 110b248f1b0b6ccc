"""Activation functions by name: value, slope, minimum, bump.

    relu      max(x, 0)
    gelu      x Φ(x), with the erf
    gelu_new  x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³))), GPT-2's
    swish     x σ(x)
    swiglu    swish(gate) · score: two questions a neuron, one opens the other

The smooth ones dip below zero left of the origin and return to it: a **bump**. It has no edge of
its own, so we say that it reaches as far as the value is at most half the minimum.

>>> swish = find_bump("swish")
>>> f"{swish.depth:.6f} at {swish.at:.6f}, from {swish.low:.3f} to {swish.high:.3f}"
'-0.278465 at -1.278465, from -3.035 to -0.334'
>>> find_bump("relu") is None
True
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from scipy.optimize import brentq
from torch import Tensor

from ffnprobe.errors import OptionRefused
from ffnprobe.models.step import ACTIVATION_FUNCTIONS

# One input each; SwiGLU is Swish on the gate, times the score.
CURVES: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": ACTIVATION_FUNCTIONS["relu"],
    "gelu": ACTIVATION_FUNCTIONS["gelu"],
    "gelu_new": ACTIVATION_FUNCTIONS["gelu_new"],
    "swish": ACTIVATION_FUNCTIONS["silu"],
}
GATED = "swiglu"
NAMES = (*CURVES, GATED)
# Every smooth curve here has its minimum and its half depths within these.
_LEFT, _RIGHT = -5.0, -1e-3
_PRECISION = 1e-15


@dataclass(frozen=True)
class Bump:
    """Where a curve dips: its minimum `depth` at `at`, and where it is half as deep."""

    depth: float
    at: float
    low: float
    high: float

    def holds(self, scores: Tensor) -> Tensor:
        """Say of each score whether it falls in the bump."""
        return (scores >= self.low) & (scores <= self.high)


def check_activation(name: str) -> str:
    """Return the name of an activation function, or list the known ones."""
    if name not in NAMES:
        raise OptionRefused(
            f'"{name}" is not an activation function of the lab.', remedy=", ".join(NAMES)
        )
    return name


def is_gated(name: str) -> bool:
    """Say whether the activation takes a gate as well as the score."""
    return check_activation(name) == GATED


def find_curve(name: str) -> Callable[[Tensor], Tensor]:
    """Return the function of one input: of the score, or for SwiGLU of the gate."""
    return CURVES["swish" if is_gated(name) else name]


def find_slope(name: str, scores: Float[Tensor, " point"]) -> Float[Tensor, " point"]:
    """Return the derivative of a curve at each point (ReLU's at 0 is 0)."""
    points = scores.detach().clone().requires_grad_()
    (slope,) = torch.autograd.grad(find_curve(name)(points).sum(), points)
    return slope


def find_bump(name: str) -> Bump | None:
    """Find a curve's minimum and half depths to the last digit; None if it never dips."""
    curve = find_curve(name)
    if name == "relu":
        return None

    def value(x: float) -> float:
        return curve(torch.tensor(x, dtype=torch.float64)).item()

    def slope(x: float) -> float:
        return find_slope(name, torch.tensor(x, dtype=torch.float64)).item()

    at = brentq(slope, _LEFT, _RIGHT, xtol=_PRECISION)
    half = value(at) / 2
    low, high = (
        brentq(lambda x: value(x) - half, *ends, xtol=_PRECISION)
        for ends in ((_LEFT, at), (at, _RIGHT))
    )
    return Bump(value(at), at, low, high)

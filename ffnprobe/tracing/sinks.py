"""Attention sinks: positions that heads look at when they have nothing to look for.

The first position is one, and any whose largest activation is more than ten times the median, over
positions, of the largest at each; the last position is never one. A sink's neurons matter to every
sentence alike, so they are evidence for none, and on other prompts they are no measure of a word.

A neuron's own quantiles over a corpus do not find sinks: at every token some neurons are beyond their own
99.9 %, most of all at a rare subject, and a neuron that opens once in each text, at the sink, is not
beyond its own.

>>> import torch
>>> sizes = torch.ones(2, 5, 3)
>>> sizes[1, 2, 0] = -40.0
>>> find_sinks(sizes)
(0, 2)
"""

from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor

if TYPE_CHECKING:
    from ffnprobe.tracing.trace import Trace

FAR_BEYOND = 10.0


def find_sinks(activations: Float[Tensor, "layer pos neuron"]) -> tuple[int, ...]:
    """Find the attention sinks before the last position."""
    earlier = compare_sizes(activations)[:-1]
    return tuple(
        position for position, ratio in enumerate(earlier) if position == 0 or ratio > FAR_BEYOND
    )


def compare_sizes(activations: Float[Tensor, "layer pos neuron"]) -> list[float]:
    """Compare the largest activation at each position with the median of these."""
    largest = activations.abs().amax(dim=(0, 2)).double()
    return (largest / largest.quantile(0.5).clamp(min=1e-30)).tolist()


def describe_sinks(trace: "Trace") -> dict[str, list[str]]:
    """Name the attention sinks of a prompt, and by which rule each is one, as a setting."""
    ratios = compare_sizes(trace.activations)
    named = [
        f"{trace.tokens[position]} at {position} "
        + (
            f"(activation {ratios[position]:,.0f} times the median)"
            if position
            else "(first position)"
        )
        for position in find_sinks(trace.activations)
    ]
    return {"set_aside": named}

"""Where neurons are looked for besides the last position, and which positions are set aside.

With contrast prompts: where the prompts differ (the subject). Without: the positions whose neurons matter
most by their estimates, those that help the answer added up. The effects of whole layers find the subject
less often: to remove a layer breaks more than it recalls (docs/evidence.md has the figures).

Attention sinks are set aside (`ffnprobe.tracing.sinks`).
"""

from dataclasses import dataclass

from einops import reduce
from jaxtyping import Float
from torch import Tensor

from ffnprobe.models.config import Config
from ffnprobe.tracing.contrast import Contrast
from ffnprobe.tracing.sinks import compare_sizes, find_sinks
from ffnprobe.tracing.trace import Trace

# Of the positions that matter, those with at least this share of the strongest one's estimate.
AT_LEAST = 0.5
MOST = 3
# Up to so many parameters, the map of layers is measured at every position.
SMALL = 20_000_000


@dataclass(frozen=True)
class Looked:
    """The earlier positions at which neurons are looked for, in order, and those set aside."""

    earlier: tuple[int, ...]
    sinks: tuple[int, ...]

    def settings(self, trace: Trace) -> dict[str, list[str]]:
        """Name the attention sinks, and by which rule each is one."""
        ratios = compare_sizes(trace.activations)
        reasons = {
            position: f"activation {ratios[position]:,.0f} times the median"
            if position
            else "first position"
            for position in self.sinks
        }
        named = [
            f"{trace.tokens[position]} at {position} ({why})" for position, why in reasons.items()
        ]
        return {"set_aside": named}


def look_at_subject(contrast: Contrast) -> Looked:
    """Look where the prompts differ and there is a counterpart, which an attention sink is not."""
    trace, alignment = contrast.trace, contrast.alignment
    differing = tuple(
        position
        for position in alignment.middle
        if position < len(trace) - 1 and position not in alignment.unmatched
    )
    return Looked(differing, find_sinks(trace.activations))


def look_at_estimates(estimates: Float[Tensor, "layer pos neuron"], trace: Trace) -> Looked:
    """Look where the neurons that help the answer are estimated to matter most, attention sinks aside."""
    sinks = find_sinks(trace.activations)
    costs = reduce(estimates.clamp(min=0), "layer pos neuron -> pos", "sum").tolist()
    candidates = [
        position
        for position in range(len(trace) - 1)
        if position not in sinks and costs[position] > 0
    ]
    candidates = sorted(candidates, key=lambda position: -costs[position])[:MOST]
    kept = [
        position for position in candidates if costs[position] >= AT_LEAST * costs[candidates[0]]
    ]
    return Looked(tuple(sorted(kept)), sinks)


def choose_columns(looked: Looked, length: int, config: Config, *, exact: bool) -> tuple[int, ...]:
    """Choose the positions whose layers are removed: all of them, or those looked at and the last."""
    if exact or config.parameters() <= SMALL:
        return tuple(range(length))
    return (*looked.earlier, length - 1)

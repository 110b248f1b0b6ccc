"""Where neurons are looked for besides the last position, and which positions are set aside.

With contrast prompts: where the prompts differ (the subject). Without: the positions whose MLPs matter
most when they are removed.

Resting places of attention are set aside: the first position, and any with an activation far beyond the
others'. Heads look there when they have nothing to look for; its neurons matter to every sentence alike.
Far beyond is ten times the median, over positions, of the largest activation at each.
"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from ffnprobe.interventions.ablation import LayerEffects
from ffnprobe.tracing.contrast import Contrast
from ffnprobe.tracing.trace import Trace

FAR_BEYOND = 10.0
# Of the positions whose MLPs matter, those with at least this share of the strongest one's effect.
AT_LEAST = 0.5
MOST = 3


@dataclass(frozen=True)
class Looked:
    """The earlier positions at which neurons are looked for, in order, and those set aside."""

    earlier: tuple[int, ...]
    resting: tuple[int, ...]

    def settings(self, trace: Trace) -> dict[str, list[str]]:
        """Name the resting places."""
        return {"set_aside": [f"{trace.tokens[place]} at {place}" for place in self.resting]}


def find_resting(activations: Float[Tensor, "layer pos neuron"]) -> tuple[int, ...]:
    """Find the resting places of attention before the last position."""
    largest = activations.abs().amax(dim=(0, 2)).double()
    middle = largest.quantile(0.5)
    return tuple(
        place
        for place in range(len(largest) - 1)
        if place == 0 or largest[place] > FAR_BEYOND * middle
    )


def look_at_subject(contrast: Contrast) -> Looked:
    """Look where the prompts differ and there is a counterpart, resting places aside."""
    trace, alignment = contrast.trace, contrast.alignment
    resting = find_resting(trace.activations)
    differing = [
        place
        for place in alignment.middle
        if place < len(trace) - 1 and place not in alignment.unmatched
    ]
    kept = [place for place in differing if place not in resting]
    return Looked(tuple(kept or differing), resting)


def look_at_map(layer_map: LayerEffects, trace: Trace) -> Looked:
    """Look where removing MLPs costs most, resting places aside."""
    resting = find_resting(trace.activations)
    costs = layer_map.values.clamp(min=0).sum(0).tolist()
    places = [place for place in range(len(trace) - 1) if place not in resting and costs[place] > 0]
    places = sorted(places, key=lambda place: -costs[place])[:MOST]
    kept = [place for place in places if costs[place] >= AT_LEAST * costs[places[0]]]
    return Looked(tuple(sorted(kept)), resting)

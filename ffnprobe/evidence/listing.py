"""The neurons that matter, at the last position and at an earlier one: chosen, graded, tabled."""

from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ffnprobe.evidence.grades import Bar
from ffnprobe.interventions.ablation import LayerEffects, ablate
from ffnprobe.interventions.gradients import estimate
from ffnprobe.models.means import read_means
from ffnprobe.models.model import Model
from ffnprobe.names import NeuronId
from ffnprobe.reading.ordering import sort_neurons
from ffnprobe.reading.rankings import compare_tokens
from ffnprobe.tracing.listing import list_neurons
from ffnprobe.tracing.pushes import Pushes
from ffnprobe.tracing.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

CANDIDATES = 64


def fit(model: Model, token: int, rival: int | None) -> Float[Tensor, "layer neuron"]:
    """Return z of every neuron's answer for the token; with a rival, how far above the rival's z."""
    layers = list(range(model.config.layers))
    ids = [token] if rival is None else [token, rival]
    z = compare_tokens(model, ids, by="answer", layers=layers)["z"].cpu()
    return z[0] if rival is None else z[0] - z[1]


def find_peak(layer_map: LayerEffects, trace: Trace) -> int | None:
    """Find the position before the last, BOS aside, where removing MLPs costs most; None if none."""
    first = 1 if trace.has_bos else 0
    earlier = layer_map.values[:, first : len(trace) - 1].clamp(min=0).sum(0)
    return None if not len(earlier) else first + int(earlier.argmax())


def list_last(
    pushes: Pushes,
    effects: Float[Tensor, "layer neuron"] | None,
    z: Float[Tensor, "layer neuron"],
    control: Bool[Tensor, "layer neuron"],
    top: int,
) -> "pd.DataFrame":
    """Grade the neurons at the last position: those that pushed most and those that cost most."""
    many = min(CANDIDATES, pushes.values.numel())
    names = sort_neurons(pushes.values, many)
    if effects is not None:
        names += sort_neurons(effects, many)
    bar = Bar.over(control, pushes.values, effects)
    place = len(pushes.trace) - 1
    return _graded(pushes.trace, place, set(names), bar, pushes.values, effects, z, top)


def list_earlier(
    trace: Trace,
    token: int,
    place: int,
    z: Float[Tensor, "layer neuron"],
    control: Bool[Tensor, "layer neuron"],
    top: int,
    asked: dict[str, Any],
) -> "pd.DataFrame":
    """Grade neurons at an earlier position: the gradient proposes, the exact effect decides."""
    hints = estimate(trace, token, **asked).over([place])
    proposed = sort_neurons(hints, min(CANDIDATES, hints.numel()))
    random = [NeuronId(*pair) for pair in control.nonzero().tolist()]
    effects = ablate(
        trace, token, position=place, neurons=[*proposed, *random], log_probability=False, **asked
    ).values
    none = torch.zeros_like(hints)
    bar = Bar.over(control, none, effects)
    return _graded(trace, place, set(proposed), bar, none, effects, z, top)


def _graded(
    trace: Trace,
    place: int,
    names: set[NeuronId],
    bar: Bar,
    pushes: Float[Tensor, "layer neuron"],
    effects: Float[Tensor, "layer neuron"] | None,
    z: Float[Tensor, "layer neuron"],
    top: int,
) -> "pd.DataFrame":
    """Table the best-graded neurons at a position, the costliest first within a grade."""
    activations = trace.activations[:, place]

    def at(values: Tensor, name: NeuronId) -> float:
        return float(values[name.layer, name.neuron])

    grades = {
        name: bar.grade(
            z=at(z, name), activation=at(activations, name), push=at(pushes, name),
            effect=None if effects is None else at(effects, name),
        )
        for name in names
    }  # fmt: skip
    weight = pushes if effects is None else effects
    ranked = sorted(names, key=lambda name: (grades[name] or "D", -at(weight, name), name))[:top]
    means = read_means(trace.model)
    columns = {}
    if trace.gate_scores is not None:
        columns = {"gate_score": trace.gate_scores[:, place], "score": trace.scores[:, place]}
    columns["activation"] = activations
    if means is not None:
        columns["mean_activation"] = means
    columns["push"] = pushes
    if effects is not None:
        columns["effect"] = effects
    columns["z"] = z
    frame = list_neurons(trace.model, ranked, columns, signs=activations)
    frame.insert(3, "position", place)
    frame.insert(4, "token", trace.tokens[place])
    frame.insert(5, "grade", [grades[name] for name in ranked])
    return frame

"""The neurons worth grading: where they are looked for, and the table of the best."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.evidence.grades import Bar
from ffnprobe.evidence.query import Query
from ffnprobe.interventions.ablation import LayerEffects
from ffnprobe.models.model import Model
from ffnprobe.names import NeuronId
from ffnprobe.reading.ordering import sort_neurons
from ffnprobe.reading.rankings import compare_tokens
from ffnprobe.tracing.neuron_tables import list_neurons
from ffnprobe.tracing.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

CANDIDATES = 64


def answer_z(model: Model, token: int, rival: int | None) -> Float[Tensor, "layer neuron"]:
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


def list_last(query: Query, effects: Float[Tensor, "layer neuron"] | None) -> "pd.DataFrame":
    """Grade the neurons at the last position: those that pushed most and those that cost most."""
    pushes = query.pushes.values
    many = min(CANDIDATES, pushes.numel())
    names = sort_neurons(pushes, many)
    if effects is not None:
        names += sort_neurons(effects, many)
    return _list_graded(query, len(query.trace) - 1, names, pushes, effects)


def list_earlier(query: Query, position: int) -> "pd.DataFrame":
    """Grade neurons at an earlier position: the gradient proposes, the exact effect decides."""
    hints = query.propose().over([position])
    proposed = sort_neurons(hints, min(CANDIDATES, hints.numel()))
    random = [NeuronId(*pair) for pair in query.control.nonzero().tolist()]
    effects = query.remove([*proposed, *random], position=position).values
    return _list_graded(query, position, proposed, torch.zeros_like(hints), effects)


def _list_graded(
    query: Query,
    position: int,
    names: Iterable[NeuronId],
    pushes: Float[Tensor, "layer neuron"],
    effects: Float[Tensor, "layer neuron"] | None,
) -> "pd.DataFrame":
    """Table the best-graded neurons at a position, the costliest first within a grade."""
    trace, chosen = query.trace, set(names)
    activations = trace.activations[:, position]
    bar = Bar.over(query.control, pushes, effects)

    def at(values: Tensor, name: NeuronId) -> float:
        return float(values[name.layer, name.neuron])

    grades = {
        name: bar.grade(
            z=at(query.z, name), activation=at(activations, name), push=at(pushes, name),
            effect=None if effects is None else at(effects, name),
        )
        for name in chosen
    }  # fmt: skip
    weight = pushes if effects is None else effects
    ranked = sorted(chosen, key=lambda name: (grades[name] or "D", -at(weight, name), name))
    ranked = ranked[: query.top]
    columns = {}
    if trace.gate_scores is not None:
        columns = {"gate_score": trace.gate_scores[:, position], "score": trace.scores[:, position]}
    columns["activation"] = activations
    if (means := trace.model.means) is not None:
        columns["mean_activation"] = means
    columns["push"] = pushes
    if effects is not None:
        columns["effect"] = effects
    columns["z"] = query.z
    frame = list_neurons(trace.model, ranked, columns, signs=activations)
    frame.insert(3, "position", position)
    frame.insert(4, "token", trace.tokens[position])
    frame.insert(5, "grade", [grades[name] for name in ranked])
    return frame

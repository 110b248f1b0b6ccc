"""The neurons worth grading: who is proposed at each position, and the table of the best."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.evidence.grades import CONTROLS, Bar, draw_alike, name_grade
from ffnprobe.evidence.query import Query
from ffnprobe.models.means import read_means
from ffnprobe.models.model import Model
from ffnprobe.names import NeuronId
from ffnprobe.reading.ordering import sort_neurons
from ffnprobe.reading.rankings import compare_tokens
from ffnprobe.reading.tokens import answer_tokens, gate_tokens, question_tokens
from ffnprobe.tracing.neuron_tables import TOKENS
from ffnprobe.tracing.path_tables import Source

if TYPE_CHECKING:
    import pandas as pd

CANDIDATES = 64
Known = Mapping[int, Float[Tensor, "layer neuron"]]  # effects, by position


def answer_z(
    model: Model, tokens: Sequence[int], rival: int | None
) -> Float[Tensor, "layer neuron"]:
    """Return z of every neuron's answer for the token; with a rival, how far above the rival's z.

    Of several tokens it is the z of the one that stands out most, up or down.
    """
    layers = list(range(model.config.layers))
    ids = list(tokens) if rival is None else [*tokens, rival]
    z = compare_tokens(model, ids, by="answer", layers=layers)["z"].cpu()
    if rival is not None:
        return z[0] - z[1]
    strongest = z.abs().argmax(dim=0, keepdim=True)
    return torch.gather(z, 0, strongest)[0]


def propose(
    query: Query,
    position: int,
    hints: Float[Tensor, "layer neuron"] | None,
) -> list[NeuronId]:
    """Propose the neurons at a position that pushed most and those estimated to cost most."""
    pushes = query.pushes[:, position]
    many = min(CANDIDATES, pushes.numel())
    proposed = sort_neurons(pushes, many)
    if hints is not None:
        proposed += sort_neurons(hints, many)
    return list(dict.fromkeys(proposed))


def draw_control(query: Query, position: int, chosen: Sequence[NeuronId]) -> list[NeuronId]:
    """Draw the neurons that those chosen at a position are compared with."""
    generator = torch.Generator().manual_seed(query.seed + position)
    sizes = query.trace.activations[:, position].abs()
    return draw_alike(sizes, chosen, CONTROLS, generator=generator)


def list_last(query: Query, effects: Float[Tensor, "layer neuron"] | None) -> "pd.DataFrame":
    """Grade the neurons at the last position: those that pushed most and those that cost most."""
    place = query.last
    names = propose(query, place, effects)
    known = {} if effects is None else {place: effects}
    return list_graded(query, {place: names}, known, looked_at=query.trace.model.config.neurons)


def list_earlier(query: Query, positions: Sequence[int]) -> "pd.DataFrame":
    """Grade neurons at earlier positions: push and gradient propose, the exact effect decides."""
    estimates = query.propose()
    names = {place: propose(query, place, estimates.over([place])) for place in positions}
    known = {
        place: query.remove([*own, *draw_control(query, place, own)], position=place).values
        for place, own in names.items()
    }
    many = len(positions) * query.trace.model.config.neurons
    return list_graded(query, names, known, looked_at=many)


def find_bars(
    query: Query, names: Mapping[int, Sequence[NeuronId]], known: Known, *, looked_at: int
) -> dict[int, Bar]:
    """Set the bars at each position over neurons like those proposed there."""
    bars = {}
    for place, own in names.items():
        control = draw_control(query, place, own)
        rows, columns = [n.layer for n in control], [n.neuron for n in control]
        effects = known[place][rows, columns] if place in known else None
        pushes = query.pushes[rows, place, columns]
        bars[place] = Bar.over(pushes, effects, looked_at=looked_at)
    return bars


def list_graded(
    query: Query,
    names: Mapping[int, Sequence[NeuronId]],
    known: Known,
    *,
    looked_at: int,
) -> "pd.DataFrame":
    """Table the best-graded neurons of all the positions, the costliest first within a grade."""
    bars = find_bars(query, names, known, looked_at=looked_at)
    rank = max(piece.rank for piece in query.pieces)
    graded: dict[Source, str] = {}
    weights: dict[Source, float] = {}
    for place, own in names.items():
        rows, columns = [n.layer for n in own], [n.neuron for n in own]
        pushes = query.pushes[rows, place, columns]
        effects = known[place][rows, columns] if place in known else None
        passed = bars[place].count(query.acted[rows, place, columns], pushes, effects)
        ordered = pushes if effects is None else effects
        for name, count, weight in zip(own, passed.tolist(), ordered.tolist(), strict=True):
            graded[name, place] = name_grade(count, rank=rank)
            weights[name, place] = weight
    ranked = sorted(graded, key=lambda one: (graded[one] or "D", -weights[one], one[1], one[0]))
    return list_sources(query, ranked[: query.top], graded, known)


def list_sources(
    query: Query, sources: Sequence[Source], grades: Mapping[Source, str], known: Known
) -> "pd.DataFrame":
    """Table neurons, each at its position, with the evidence for them."""
    import pandas as pd

    trace = query.trace
    model, names = trace.model, [name for name, _ in sources]

    def at(values: Float[Tensor, "layer pos neuron"]) -> list[float]:
        return [float(values[n.layer, place, n.neuron]) for n, place in sources]

    frame = pd.DataFrame(
        {
            "name": [str(n) for n in names], "layer": [n.layer for n in names],
            "neuron": [n.neuron for n in names], "position": [place for _, place in sources],
            "token": [trace.tokens[place] for _, place in sources],
            "grade": [grades[one] for one in sources],
        }
    )  # fmt: skip
    if trace.gate_scores is not None:
        frame["gate_score"], frame["score"] = at(trace.gate_scores), at(trace.scores)
    frame["activation"] = at(trace.activations)
    if query.contrast is not None:
        frame["contrast_activation"] = at(query.contrast.replacement)
    elif (means := read_means(model)) is not None:
        frame["mean_activation"] = [float(means[n.layer, n.neuron]) for n in names]
    frame["push"] = at(query.pushes)
    frame["through"] = name_heads(query, sources)
    if known:
        frame["effect"] = [float(known[place][n.layer, n.neuron]) for n, place in sources]
    frame["z"] = at(query.acted)
    if (opened := gate_tokens(model, names, TOKENS)) is not None:
        frame["gate_tokens"] = [" ".join(row) for row in opened]
    asked = question_tokens(model, names, TOKENS)
    answered = answer_tokens(model, names, TOKENS, signs=frame.activation.tolist())
    frame["question_tokens"] = [" ".join(row) for row in asked]
    frame["answer_tokens"] = [" ".join(row) for row in answered]
    return frame


def name_heads(query: Query, sources: Sequence[Source]) -> list[str]:
    """Name the head that carried most of each push from an earlier position; at the last, none.

    For an answer of several tokens it is the head that carried most to any piece.
    """
    strongest: list[tuple[str, float]] = [("", 0.0)] * len(sources)
    for owners in query.owners:
        for row, found in enumerate(owners.name_heads(sources)):
            if sources[row][1] < query.last and abs(found[1]) > abs(strongest[row][1]):
                strongest[row] = found
    return [head for head, _ in strongest]

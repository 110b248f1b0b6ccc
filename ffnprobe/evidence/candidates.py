"""Grade the neurons of pools, and table the best of them with the evidence."""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.evidence.grades import name_grade
from ffnprobe.evidence.proposals import Removed, find_bars, gather_pool, pick
from ffnprobe.evidence.query import Query
from ffnprobe.models.means import read_means
from ffnprobe.models.model import Model
from ffnprobe.reading.rankings import compare_tokens
from ffnprobe.reading.tokens import answer_tokens, gate_tokens, question_tokens
from ffnprobe.tracing.neuron_tables import TOKENS
from ffnprobe.tracing.path_tables import Source

if TYPE_CHECKING:
    import pandas as pd

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


def list_first(query: Query) -> "pd.DataFrame":
    """Grade the neurons that pushed most at the last position; no effects are known yet."""
    pool = gather_pool(query, query.last)
    removed = Removed({query.last: pool}, {})
    (table,) = list_graded(query, [(removed, query.trace.model.config.neurons)])
    return table


def list_graded(query: Query, parts: Sequence[tuple[Removed, int]]) -> "list[pd.DataFrame]":
    """Table the best-graded neurons of each part: what was removed, and how many were looked at.

    The tokens of all tables are looked up together, since each look-up reads the whole vocabulary.
    """
    ranked, grades, known = [], dict[Source, str](), dict[int, Float[Tensor, "layer neuron"]]()
    for removed, looked_at in parts:
        own, graded = rank_graded(query, removed, looked_at)
        ranked.append(own)
        grades |= graded
        known |= removed.effects
    listed = list_sources(query, [one for own in ranked for one in own], grades, known)
    ends = list(accumulate(map(len, ranked), initial=0))
    return [listed[a:b].reset_index(drop=True) for a, b in pairwise(ends)]


def rank_graded(
    query: Query, removed: Removed, looked_at: int
) -> tuple[list[Source], dict[Source, str]]:
    """Rank the best-graded neurons of all the positions, the costliest first within a grade."""
    rank = max(piece.rank for piece in query.pieces)
    graded: dict[Source, str] = {}
    weights: dict[Source, float] = {}
    for position, pool in removed.pools.items():
        pushes, effects = pick(query.pushes[:, position], pool.names), None
        if position in removed.effects:
            effects = pick(removed.effects[position], pool.names)
        bar = find_bars(query, pool, removed.effects.get(position), looked_at=looked_at)
        passed = bar.count(pick(query.acted[:, position], pool.names), pushes, effects)
        ordered = pushes if effects is None else effects
        for name, count, weight in zip(pool.names, passed.tolist(), ordered.tolist(), strict=True):
            graded[name, position] = name_grade(count, rank=rank)
            weights[name, position] = weight
    ranked = sorted(graded, key=lambda one: (graded[one] or "D", -weights[one], one[1], one[0]))
    return ranked[: query.top], graded


def list_sources(
    query: Query, sources: Sequence[Source], grades: Mapping[Source, str], known: Known
) -> "pd.DataFrame":
    """Table neurons, each at its position, with the evidence for them."""
    import pandas as pd

    trace = query.trace
    model, names = trace.model, [name for name, _ in sources]

    def at(values: Float[Tensor, "layer pos neuron"]) -> list[float]:
        return [float(values[n.layer, position, n.neuron]) for n, position in sources]

    frame = pd.DataFrame(
        {
            "name": [str(n) for n in names], "layer": [n.layer for n in names],
            "neuron": [n.neuron for n in names], "position": [position for _, position in sources],
            "token": [trace.tokens[position] for _, position in sources],
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
        frame["effect"] = [float(known[position][n.layer, n.neuron]) for n, position in sources]
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

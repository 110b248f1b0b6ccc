"""The tables of an explanation: neurons at their positions, who makes up the logit, paths, pieces."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.interventions.question import Question
from ffnprobe.interventions.readout import Readout
from ffnprobe.interventions.replay import Replay
from ffnprobe.interventions.sweeps import sweep_changes
from ffnprobe.names import NeuronId
from ffnprobe.reading.ordering import top_tokens
from ffnprobe.reading.tokens import answer_tokens, gate_tokens, question_tokens
from ffnprobe.tracing.neuron_tables import TOKENS
from ffnprobe.tracing.path_tables import Source

if TYPE_CHECKING:
    import pandas as pd


def read_sites(table: "pd.DataFrame") -> list[Source]:
    """Return a table's neurons, each with its position."""
    return [
        (NeuronId(layer, neuron), position)
        for layer, neuron, position in zip(table.layer, table.neuron, table.position, strict=True)
    ]


def name_sites(question: Question, sites: Sequence[Source]) -> "pd.DataFrame":
    """Name neurons and their positions."""
    import pandas as pd

    rows = [(str(n), n.layer, n.neuron, at, question.trace.tokens[at]) for n, at in sites]
    return pd.DataFrame(rows, columns=["name", "layer", "neuron", "position", "token"])


def list_largest(
    values: Float[Tensor, "layer pos neuron"], many: int, *, smallest: bool = False
) -> list[Source]:
    """List the sites of largest positive value, or of smallest negative."""
    _, length, neurons = values.shape
    flat = (-values if smallest else values).ravel()[None]
    found, order = top_tokens(flat, min(many, values.numel()))
    sites = list[Source]()
    for value, cell in zip(found[0].tolist(), order[0].tolist(), strict=True):
        rest, neuron = divmod(cell, neurons)
        layer, position = divmod(rest, length)
        if value > 0:
            sites.append((NeuronId(layer, neuron), position))
    return sites


def table_sites(
    question: Question,
    sites: Sequence[Source],
    grades: Sequence[str],
    z: Sequence[float],
    effects: Mapping[Source, float] | None,
) -> "pd.DataFrame":
    """Table neurons, each at its position, with the evidence for them."""
    trace = question.trace
    model, names = trace.model, [name for name, _ in sites]

    def at(values: Float[Tensor, "layer pos neuron"]) -> list[float]:
        return [float(values[n.layer, position, n.neuron]) for n, position in sites]

    frame = name_sites(question, sites)
    frame["grade"] = list(grades)
    if trace.gate_scores is not None:
        frame["gate_score"], frame["score"] = at(trace.gate_scores), at(trace.scores)
    frame["activation"] = at(trace.activations)
    if effects is not None:
        frame["set_to"] = [question.change(site).value for site in sites]
    frame["push"] = at(question.direct_pushes)
    frame["push_through_attention"] = at(question.attention_pushes)
    frame["through"] = [head for head, _ in name_heads(question, sites)]
    if effects is not None:
        frame["effect"] = [effects[site] for site in sites]
    frame["z"] = list(z)
    if (opened := gate_tokens(model, names, TOKENS)) is not None:
        frame["gate_tokens"] = [" ".join(row) for row in opened]
    asked = question_tokens(model, names, TOKENS)
    answered = answer_tokens(model, names, TOKENS, signs=frame.activation.tolist())
    frame["question_tokens"] = [" ".join(row) for row in asked]
    frame["answer_tokens"] = [" ".join(row) for row in answered]
    return frame


def name_heads(question: Question, sites: Sequence[Source]) -> list[tuple[str, float]]:
    """Name the head that carried most of each push from before the last position, and how much.

    For an answer of several tokens it is the head that carried most to any piece.
    """
    strongest: list[tuple[str, float]] = [("", 0.0)] * len(sites)
    for owners in question.owners:
        for row, found in enumerate(owners.name_heads(sites)):
            if sites[row][1] < question.last and abs(found[1]) > abs(strongest[row][1]):
                strongest[row] = found
    return strongest


def table_shares(
    question: Question, listed: "pd.DataFrame", subject: Sequence[int]
) -> "pd.DataFrame":
    """Table who carries the answer's logit, attention's part given to its owners; rows add up to it."""
    import pandas as pd

    at_subject = listed.position.isin(list(subject))
    direct = through_subject = elsewhere = embedded = carried = biases = 0.0
    constants = dict[str, float]()
    for piece, owners in zip(question.pieces, question.owners, strict=True):
        own = owners.through.double().sum(dim=(0, 2))
        is_subject = torch.zeros(len(own), dtype=torch.bool)
        is_subject[list(subject)] = True
        direct += float(piece.values.double().sum())
        through_subject += float(own[is_subject].sum())
        elsewhere += float(own[~is_subject].sum())
        here = piece.account.embedding + piece.account.position
        embedded += here
        carried += float(owners.embeddings.double().sum()) - here
        biases += float(owners.biases.double().sum())
        for name, value in piece.account.constants.items():
            constants[name] = constants.get(name, 0.0) + value
    through = listed.push_through_attention
    rows = {
        f"the {len(listed)} neurons listed": float(listed.push.sum() + through.sum()),
        "other neurons, directly": direct - float(listed.push.sum()),
    }
    if len(subject):
        named = " ".join(question.trace.tokens[position] for position in subject)
        rest = through_subject - float(through[at_subject].sum())
        rows[f"other neurons at {named}, through attention"] = rest
    rest = elsewhere - float(through[~at_subject].sum())
    rows |= {
        "neurons at other tokens, through attention": rest,
        "embeddings, directly": embedded,
        "embeddings, through attention": carried,
        "biases": biases,
        **constants,
    }
    total = sum(piece.logit for piece in question.pieces)
    rows |= {"rounding": total - sum(rows.values()), "the answer's logit": total}
    return pd.DataFrame({"part": list(rows), "push": list(rows.values())})


def table_paths(question: Question, sinks: Sequence[int], many: int = 10) -> "pd.DataFrame":
    """Table the strongest paths from a neuron at an earlier position through a head to the answer.

    Attention sinks are left out. `through` carried most of the push, `carried` so much.
    """
    values = question.attention_pushes.clone()
    values[:, [*sinks, question.last]] = 0
    sites = list_largest(values.abs(), many)
    frame = name_sites(question, sites)
    trace = question.trace
    for column, each in (("activation", trace.activations), ("push_through_attention", values)):
        frame[column] = [float(each[n.layer, at, n.neuron]) for n, at in sites]
    heads = name_heads(question, sites)
    frame["through"], frame["carried"] = [h for h, _ in heads], [c for _, c in heads]
    return frame


def table_pieces(question: Question, listed: "pd.DataFrame") -> "pd.DataFrame | None":
    """Table what the listed neurons push and cost each piece; None for an answer of one token."""
    import pandas as pd

    if len(question.pieces) == 1:
        return None
    sites, frames = read_sites(listed), []
    for piece, owners in zip(question.pieces, question.owners, strict=True):
        own = listed[["name", "layer", "neuron", "position", "token"]].copy()
        own.insert(0, "piece", question.trace.model.vocab.show(piece.answer))
        is_here = [position == piece.position for _, position in sites]
        own["push"] = [
            float(piece.values[n.layer, n.neuron]) if here else 0.0
            for (n, _), here in zip(sites, is_here, strict=True)
        ]
        own["push_through_attention"] = [
            float(owners.through[n.layer, position, n.neuron]) for n, position in sites
        ]
        if "effect" in listed:
            readout = Readout(
                Replay(piece.trace), (piece.answer,), None, piece.position, False, piece.convention
            )
            effects = sweep_changes(readout, [[question.change(site)] for site in sites])
            own["effect"] = effects.logit.double().numpy()
        frames.append(own)
    return pd.concat(frames, ignore_index=True)

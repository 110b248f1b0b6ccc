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
from ffnprobe.names import NeuronId, Site
from ffnprobe.reading.neuron_tables import Values, list_neurons
from ffnprobe.reading.projection import sort_sites

if TYPE_CHECKING:
    import pandas as pd


def read_sites(table: "pd.DataFrame") -> list[Site]:
    """Return a table's neurons, each with its position."""
    return [
        (NeuronId(layer, neuron), position)
        for layer, neuron, position in zip(table.layer, table.neuron, table.position, strict=True)
    ]


def list_largest(
    values: Float[Tensor, "layer pos neuron"], many: int, *, smallest: bool = False
) -> list[Site]:
    """List the sites of largest positive value, or of smallest negative."""
    signed = -values if smallest else values
    return [(n, at) for n, at in sort_sites(signed, many) if signed[n.layer, at, n.neuron] > 0]


def table_sites(
    question: Question,
    sites: Sequence[Site],
    grades: Sequence[str],
    z: Sequence[float],
    effects: Mapping[Site, float] | None,
) -> "pd.DataFrame":
    """Table neurons, each at its position, with the evidence for them."""
    trace = question.trace
    columns: dict[str, Values] = {
        "grade": grades, "activation": trace.activations, "push": question.direct_pushes,
        "push_through_attention": question.attention_pushes, "z": z,
        "through": [head for head, _ in name_heads(question, sites)],
    }  # fmt: skip
    if trace.gate_scores is not None:
        columns |= {"gate_score": trace.gate_scores, "score": trace.scores}
    if effects is not None:
        columns["set_to"] = [question.change(site).value for site in sites]
        columns["effect"] = [effects[site] for site in sites]
    return list_neurons(trace.model, sites, columns, signs=trace.activations, tokens=trace.tokens)


def name_heads(question: Question, sites: Sequence[Site]) -> list[tuple[str, float]]:
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
    heads, trace = name_heads(question, sites), question.trace
    columns: dict[str, Values] = {
        "activation": trace.activations, "push_through_attention": values,
        "through": [head for head, _ in heads], "carried": [carried for _, carried in heads],
    }  # fmt: skip
    return list_neurons(trace.model, sites, columns, tokens=trace.tokens)


def table_pieces(question: Question, listed: "pd.DataFrame") -> "pd.DataFrame | None":
    """Table what the listed neurons push and cost each piece; None for an answer of one token."""
    import pandas as pd

    if len(question.pieces) == 1:
        return None
    sites, frames, trace = read_sites(listed), [], question.trace
    for piece, owners in zip(question.pieces, question.owners, strict=True):
        direct = torch.zeros_like(owners.through)
        direct[:, piece.position] = piece.values
        columns: dict[str, Values] = {
            "piece": trace.model.vocab.show(piece.answer), "push": direct,
            "push_through_attention": owners.through,
        }  # fmt: skip
        if "effect" in listed:
            readout = Readout(
                Replay(piece.trace), (piece.answer,), None, piece.position, False, piece.convention
            )
            changes = [[question.change(site)] for site in sites]
            columns["effect"] = sweep_changes(readout, changes).logit
        frames.append(list_neurons(trace.model, sites, columns, tokens=trace.tokens))
    return pd.concat(frames, ignore_index=True)

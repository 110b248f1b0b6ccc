"""Who carries the answer's logit, attention's part given to its owners; the rows add up to it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from ffnprobe.evidence.query import Query
from ffnprobe.names import NeuronId
from ffnprobe.reading.ordering import top_tokens
from ffnprobe.tracing.path_tables import Source

if TYPE_CHECKING:
    import pandas as pd


def table_shares(
    query: Query, tables: "Sequence[pd.DataFrame]", subject: Sequence[int]
) -> "pd.DataFrame":
    """Table who carries the answer's logit; of several pieces, their logits added up."""
    import pandas as pd

    listed = pd.concat(tables, ignore_index=True)
    last = listed.position == query.last
    direct, at_subject, elsewhere = 0.0, 0.0, 0.0
    embedded, carried, biases, constants = 0.0, 0.0, 0.0, dict[str, float]()
    for piece, owners in zip(query.pieces, query.owners, strict=True):
        own = owners.through.double().sum(dim=(0, 2))
        is_subject = torch.zeros(len(own), dtype=torch.bool)
        is_subject[list(subject)] = True
        direct += float(piece.values.double().sum())
        at_subject += float(own[is_subject].sum())
        elsewhere += float(own[~is_subject].sum())
        here = piece.account.embedding + piece.account.position
        embedded += here
        carried += float(owners.embeddings.double().sum()) - here
        biases += float(owners.biases.double().sum())
        for name, value in piece.account.constants.items():
            constants[name] = constants.get(name, 0.0) + value
    rows = {f"the {len(listed)} neurons listed": float(listed.push.sum())}
    ends = _through_end(query, listed[last])
    rows["other neurons, directly"] = direct - float(listed.push[last].sum()) + ends
    if len(subject):
        named = " ".join(query.trace.tokens[position] for position in subject)
        rows[f"other neurons at {named}, through attention"] = at_subject - float(
            listed.push[~last].sum()
        )
    rows["neurons at other tokens, through attention"] = elsewhere - ends
    rows |= {
        "embeddings, directly": embedded,
        "embeddings, through attention": carried,
        "biases": biases,
        **constants,
    }
    total = sum(piece.logit for piece in query.pieces)
    rows |= {"rounding": total - sum(rows.values()), "the answer's logit": total}
    return pd.DataFrame({"part": list(rows), "push": list(rows.values())})


def _through_end(query: Query, listed: "pd.DataFrame") -> float:
    """Return how much of the listed neurons' pushes at the last position is not direct.

    Toward an answer's later pieces they push through attention.
    """
    direct = sum(
        float(piece.values[layer, neuron])
        for piece in query.pieces
        if piece.position == query.last
        for layer, neuron in zip(listed.layer, listed.neuron, strict=True)
    )
    return float(listed.push.sum()) - direct


def table_paths(query: Query, many: int = 10, *, sinks: Sequence[int] = ()) -> "pd.DataFrame":
    """Table the strongest paths from a neuron at an earlier position through a head to the answer.

    Attention sinks are left out. `through` carried most of the push, `carried` so much.
    """
    import pandas as pd

    trace = query.trace
    values = query.pushes[:, : query.last].clone()
    values[:, list(sinks)] = 0
    _, length, neurons = values.shape
    many = min(many, values.numel())
    flat = top_tokens(values.ravel().abs()[None], many)[1][0].tolist() if many else []
    sources: list[Source] = []
    for number in flat:
        rest, neuron = divmod(number, neurons)
        layer, position = divmod(rest, length)
        if float(values[layer, position, neuron]):
            sources.append((NeuronId(layer, neuron), position))
    heads: list[tuple[str, float]] = [("", 0.0)] * len(sources)
    for owners in query.owners:
        for row, found in enumerate(owners.name_heads(sources)):
            heads[row] = found if abs(found[1]) > abs(heads[row][1]) else heads[row]
    rows = [
        (str(n), n.layer, n.neuron, position, trace.tokens[position],
         float(trace.activations[n.layer, position, n.neuron]),
         float(values[n.layer, position, n.neuron]), *head)
        for (n, position), head in zip(sources, heads, strict=True)
    ]  # fmt: skip
    columns = ["name", "layer", "neuron", "position", "token", "activation", "push"]
    return pd.DataFrame(rows, columns=[*columns, "through", "carried"])

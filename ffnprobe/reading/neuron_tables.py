"""Tables of neurons: a row each, at a position of a prompt or at none, with columns in one order.

>>> import ffnprobe as fp
>>> model, sites = fp.load("pocket"), [(fp.NeuronId(3, 361), 2)]
>>> table = list_neurons(model, sites, {"z": [1.5], "push": [0.5]}, tokens=["The", "cat", "sat"])
>>> list(table.columns)
['name', 'layer', 'neuron', 'position', 'token', 'push', 'z']
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from ffnprobe.models.model import Model
from ffnprobe.names import NeuronId, Site
from ffnprobe.reading.projection import (
    check_top,
    list_own_tokens,
    sort_neurons,
)

if TYPE_CHECKING:
    import pandas as pd

# By [layer neuron], by [layer pos neuron], or in the order of the rows; a text or number is that of every row.
Values = Tensor | np.ndarray | Sequence[Any] | str | float

TOKENS = 5
OTHERS = "…"  # where columns stand that are not named here, in the order given
ORDER = (
    "fact", "relation", "piece", "name", "layer", "neuron", "position", "token", "grade",
    "gate_score", "score", "activation", "activation_first", "activation_second",
    "activation_source", "activation_target", "mean_activation", "contrast_activation",
    "set_to", "removed",
    "push", "push_first", "push_second", "contrast_push", "difference", "facts", "share", "elsewhere",
    "odds", "push_through_attention", "through", "step", "carried", "drive", "influence", "inside",
    "effect", "estimate", "log_probability_effect", "z", "p", "dot", "cosine", OTHERS,
    "gate_tokens", "question_tokens", "answer_tokens", "promotes", "twin_promotes", "suppresses",
    "label", "label_f1", "strongest_example",
)  # fmt: skip
_PLACES = {name: place for place, name in enumerate(ORDER)}


def list_neurons(
    model: Model | None,
    neurons: Sequence[NeuronId | Site | tuple[str, int]],
    columns: Mapping[str, Values],
    *,
    signs: Tensor | None = None,
    tokens: Sequence[str] | None = None,
) -> "pd.DataFrame":
    """Table neurons: name, layer, neuron, and the columns given; lists of tokens become texts.

    With the tokens of a prompt, each neuron has a position, and the table has it and its token. A part that
    is not a neuron, as an embedding, has a name alone.

    With signs, the tokens that neurons stand for follow: what opens the gate (where neurons have gates) and
    the question, and what the answer promotes, negated where the sign is negative.
    """
    import pandas as pd

    sites = [one if isinstance(one, tuple) else (one, 0) for one in neurons]
    names = [name for name, _ in sites if isinstance(name, NeuronId)]
    layers, numbers = [name.layer for name in names], [name.neuron for name in names]
    positions = [position for _, position in sites]

    def pick(values: Tensor) -> Tensor:
        if values.ndim < 2:
            return values
        return values[(layers, positions, numbers) if values.ndim == 3 else (layers, numbers)]

    rows = [
        (str(name), getattr(name, "layer", None), getattr(name, "neuron", None), position,
         "" if tokens is None else tokens[position])
        for name, position in sites
    ]  # fmt: skip
    table = pd.DataFrame(rows, columns=["name", "layer", "neuron", "position", "token"])
    if tokens is None:
        table = table.drop(columns=["position", "token"])
    named = dict(columns)
    if signs is not None:
        assert model is not None  # its weights say the tokens
        for by in ("gate", "question") if model.config.is_gated else ("question",):
            named[f"{by}_tokens"] = list_own_tokens(model, names, TOKENS, by=by)
        signed = pick(signs).tolist()
        named["answer_tokens"] = list_own_tokens(model, names, TOKENS, signs=signed)
    for column, values in named.items():
        if isinstance(values, Tensor):
            chosen = pick(values).cpu()
            table[column] = (chosen.double() if chosen.is_floating_point() else chosen).numpy()
        elif isinstance(values, list):
            table[column] = [" ".join(v) if isinstance(v, list) else v for v in values]
        else:
            table[column] = values
    return order_columns(table)


def list_top(
    model: Model,
    top: int | None,
    *,
    by: Float[Tensor, "layer neuron"],
    columns: Mapping[str, Float[Tensor, "layer neuron"]],
    signs: Float[Tensor, "layer neuron"],
    smallest: bool = False,
    of: str = "neurons",
) -> "pd.DataFrame":
    """Table the `top` neurons of largest (or smallest) value, leaving out those without one."""
    missing = by.isnan()
    top = check_top(top, int((~missing).sum()), of=of)
    last = float("inf") if smallest else float("-inf")
    neurons = sort_neurons(by.masked_fill(missing, last), top, smallest=smallest)
    return list_neurons(model, neurons, columns, signs=signs)


def order_columns(table: "pd.DataFrame") -> "pd.DataFrame":
    """Put the columns of a table of neurons in their one order."""
    return table[sorted(table, key=lambda name: _PLACES.get(str(name), _PLACES[OTHERS]))]

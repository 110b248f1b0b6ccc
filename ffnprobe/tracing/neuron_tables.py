"""Tables of neurons on a prompt: chosen by a value, named first, with the tokens they stand for."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor

from ffnprobe.models.model import Model
from ffnprobe.names import NeuronId
from ffnprobe.reading.tokens import answer_tokens, gate_tokens, question_tokens

if TYPE_CHECKING:
    import pandas as pd

TOKENS = 5


def list_neurons(
    model: Model,
    neurons: Sequence[NeuronId],
    columns: Mapping[str, Float[Tensor, "layer neuron"]],
    *,
    signs: Float[Tensor, "layer neuron"],
) -> "pd.DataFrame":
    """Table neurons: name, layer, neuron, the columns given, question tokens and answer tokens.

    Gate tokens stand before them where neurons have gates.

    Answer tokens are what the answer promotes, negated where the sign is negative.
    """
    import pandas as pd

    layers, numbers = [n.layer for n in neurons], [n.neuron for n in neurons]
    turned = answer_tokens(model, neurons, TOKENS, signs=signs[layers, numbers].tolist())
    frame = pd.DataFrame({"name": [str(n) for n in neurons], "layer": layers, "neuron": numbers})
    for name, column in columns.items():
        frame[name] = column[layers, numbers].double().numpy()
    if (opened := gate_tokens(model, neurons, TOKENS)) is not None:
        frame["gate_tokens"] = [" ".join(row) for row in opened]
    frame["question_tokens"] = [" ".join(row) for row in question_tokens(model, neurons, TOKENS)]
    frame["answer_tokens"] = [" ".join(row) for row in turned]
    return frame

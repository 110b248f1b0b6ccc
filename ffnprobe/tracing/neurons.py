"""Single neurons on a prompt: one at every position, or the most active at one position."""

from typing import TYPE_CHECKING

import torch
from einops import einsum

from ffnprobe.names import NeuronId
from ffnprobe.reading.ordering import check_top, sort_neurons
from ffnprobe.tracing.answers import one_token, predicted
from ffnprobe.tracing.neuron_tables import list_neurons

if TYPE_CHECKING:
    import pandas as pd

    from ffnprobe.tracing.trace import Trace


@torch.no_grad()
def table_neuron(
    trace: "Trace", neuron: str | NeuronId, answer: str | int | None = None
) -> "pd.DataFrame":
    """Table a neuron's score (and its gate's, if it has one), activation and push at every position.

    The push, in logits, is toward the token in the column `toward`: the answer, or where none is
    given the model's own prediction at that position. It is that of `attribute`, centred.
    """
    import pandas as pd

    model = trace.model
    name = model.find_neuron(neuron)
    if answer is None:
        toward = [predicted(trace, position) for position in range(len(trace))]
    else:
        toward = [one_token(model, answer, use="a neuron's push")] * len(trace)
    activations = trace.activations[name.layer, :, name.neuron]
    amounts = trace.amounts[name.layer, :, name.neuron]
    directions = model.unembedding[toward] - model.mean_unembedding
    lifts = einsum(
        directions, model.answers[name.layer, name.neuron], "pos d_model, d_model -> pos"
    )
    gates = trace.gate_scores
    opened = {} if gates is None else {"gate_score": gates[name.layer, :, name.neuron].tolist()}
    return pd.DataFrame(
        {
            "position": range(len(trace)),
            "token": trace.tokens,
            **opened,
            "score": trace.scores[name.layer, :, name.neuron].tolist(),
            "activation": activations.tolist(),
            "push": (amounts * lifts.cpu() / trace.final_scale).tolist(),
            "toward": model.vocab.show_all(toward),
        }
    )


@torch.no_grad()
def table_fired(trace: "Trace", position: int = -1, top: int | None = 10) -> "pd.DataFrame":
    """Table the `top` neurons of highest activation at a position, with what they promote."""
    index = trace.at(position)
    activations = trace.activations[:, index]
    top = check_top(top, activations.numel(), of="neurons")
    columns = {} if trace.gate_scores is None else {"gate_score": trace.gate_scores[:, index]}
    columns |= {"score": trace.scores[:, index], "activation": activations}
    return list_neurons(trace.model, sort_neurons(activations, top), columns, signs=activations)

"""Single neurons on a prompt: one at every position, or the most active at one position."""

from typing import TYPE_CHECKING

import torch
from einops import einsum

from ffnprobe.names import NeuronId
from ffnprobe.reading.neuron_tables import list_top
from ffnprobe.tracing.answers import one_token, predicted

if TYPE_CHECKING:
    import pandas as pd

    from ffnprobe.tracing.trace import Trace


@torch.no_grad()
def table_neuron(
    trace: "Trace", neuron: str | NeuronId, answer: str | int | None = None
) -> "pd.DataFrame":
    """Table a neuron's score (and its gate's, if it has one), activation and push at every position.

    With an answer, which comes after the last position: its direct push there (0 before), and what heads
    carried there of what it wrote at each position, as `attribute`, `paths` and `explain` have them. Without
    one, its direct push toward the model's own prediction at each position. Both are centred, in logits.
    """
    import pandas as pd

    from ffnprobe.tracing.owners import find_owners
    from ffnprobe.tracing.pushes import attribute

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
    pushes = amounts * lifts.cpu() / trace.final_scale
    through = dict[str, list[float]]()
    if answer is not None:
        pushes[:-1] = 0
        if trace.patterns is not None:
            owners = find_owners(attribute(trace, toward[-1]).pieces[0])
            carried = owners.through[name.layer, :, name.neuron]
            through["push_through_attention"] = carried.tolist()
    gates = trace.gate_scores
    opened = {} if gates is None else {"gate_score": gates[name.layer, :, name.neuron].tolist()}
    return pd.DataFrame(
        {
            "position": range(len(trace)),
            "token": trace.tokens,
            **opened,
            "score": trace.scores[name.layer, :, name.neuron].tolist(),
            "activation": activations.tolist(),
            "push": pushes.tolist(),
            **through,
            "toward": model.vocab.show_all(toward),
        }
    )


@torch.no_grad()
def table_fired(trace: "Trace", position: int = -1, top: int | None = 10) -> "pd.DataFrame":
    """Table the `top` neurons of highest activation at a position, with what they promote."""
    index = trace.at(position)
    activations = trace.activations[:, index]
    columns = {} if trace.gate_scores is None else {"gate_score": trace.gate_scores[:, index]}
    columns |= {"score": trace.scores[:, index], "activation": activations}
    return list_top(trace.model, top, by=activations, columns=columns, signs=activations)

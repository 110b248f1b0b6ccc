"""The model with its patterns, scales and activations held, forward and in float64: what edges must equal."""

from dataclasses import dataclass

import torch
from torch import Tensor

import ffnprobe as fp
from ffnprobe.models.step import measure_scale


@dataclass
class Frozen:
    """Every score, and the stream at the end over its scale."""

    scores: Tensor
    gates: Tensor | None
    final: Tensor


def run_frozen(
    trace: fp.Trace,
    *,
    without: tuple[int, int, int] | None = None,
    word: int | None = None,
    by: tuple[int, int] | None = None,
) -> Frozen:
    """Add everything up again without one neuron (layer, position, neuron) or one word's embedding.

    With `by`, a head, it is only this head that does not see it.
    """
    model = trace.model
    amounts = trace.amounts.double().clone()
    stream = model.embedding[list(trace.ids)].double()
    gone = torch.zeros_like(stream)
    if model.position_embedding is not None:
        stream = stream + model.position_embedding[: len(trace)].double()
    if word is not None:
        gone[word] = model.embedding[trace.ids[word]].double()
    if by is None:
        stream = stream - gone
    scores, gates = [], []
    for layer, a in enumerate(model.attention):
        read = stream
        scale = measure_scale(model, trace.before_attention[layer].double())[:, None]
        written = torch.zeros_like(stream)
        for head in range(model.config.heads):
            shared = head * model.config.kv_heads // model.config.heads
            seen = read - gone if by == (layer, head) else read
            value = model.centre(seen) / scale @ a.value[shared].double().T
            value = value + a.value_bias[shared].double()
            written += trace.patterns[layer, head].double() @ value @ a.out[head].double()
        written = written + a.out_bias.double()
        if a.post_gain is not None:
            written = written * a.post_gain.double()
            written = written / trace.attention_post_scales[layer, :, None].double()
        stream = stream + written
        asked = read if model.config.is_parallel else stream
        asked = model.centre(asked) / trace.scales[layer, :, None].double()
        questions, biases = model.questions[layer].double(), model.question_biases[layer].double()
        scores.append(asked @ questions.T + biases)
        if model.gates is not None:
            gates.append(asked @ model.gates[layer].double().T + model.gate_biases[layer].double())
        answers = model.answers[layer].double()
        if without is not None and without[0] == layer:
            _, place, neuron = without
            if by is None:
                amounts[layer, place, neuron] = 0
            else:
                gone[place] = amounts[layer, place, neuron] * answers[neuron]
        stream = stream + amounts[layer] @ answers + model.answer_biases[layer].double()
    final = model.centre(stream) / trace.final_scale[:, None].double()
    return Frozen(torch.stack(scores), torch.stack(gates) if gates else None, final)

"""Influence: what each neuron is worth to the answer, directly and through every neuron after it.

The model with its patterns and scales held, and each activation following its score as `openings` say,
is linear. Its answer's slope along what layer l writes at position j is found from the answer back, in
one pass:

    R(L) = u_t / s_T at T
    R(l) = R(l + 1) + Σ_n (w_n · R(l + 1)) (o_n q_n + o′_n g_n) / s + Σ_h c(l, h)       c as in `carrying`

    influence of n at j = (a_n − r_n) · (w_n · R(l + 1))       r: what a removed neuron is set to

So no edge between any two of all neurons is ever made: edges are made between the few that are kept. With
the openings left out (no neuron follows another) the same pass gives the push, directly and through heads.

Limits: what a neuron does to patterns and scales is not in its influence. `recovery` tests, by replaying
the model, how much of the answer the neurons that are kept give back.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor

from ffnprobe.circuits.openings import ActivationSlopes
from ffnprobe.tracing.attention import seek
from ffnprobe.tracing.attribution import Pushes, read_direction
from ffnprobe.tracing.trace import Trace

Reader = Float[Tensor, "pos d_model"]


@dataclass(frozen=True, eq=False)
class Slopes:
    """How far the answer's logit moves for a unit of each activation, and of the embeddings."""

    activations: Float[Tensor, "layer pos neuron"]
    embeddings: Reader


def read_answers(pieces: Sequence[Pushes]) -> Reader:
    """Return the direction along which the stream before the final norm counts toward an answer."""
    trace = pieces[0].trace
    model = trace.model
    reader = torch.zeros(len(trace), model.config.d_model, device=model.device)
    for piece in pieces:
        along = read_direction(model, piece.answer, piece.versus, piece.convention)
        reader[piece.position] += along / trace.final_scale[piece.position]
    return reader


@torch.no_grad()
def follow_back(trace: Trace, reader: Reader, openings: ActivationSlopes | None) -> Slopes:
    """Take the answer's reader back to the words, through heads and (with openings) neurons."""
    model = trace.model
    found = torch.empty_like(trace.activations)
    for layer in reversed(range(model.config.layers)):
        slopes = read_slopes(trace, layer, reader)
        found[layer] = slopes.cpu()
        asked = torch.zeros_like(reader)
        if openings is not None:
            asked = _ask(trace, layer, slopes, openings)
        # Attention's writing is read by the layer's own MLP, unless both read the same stream.
        written = reader if model.config.is_parallel else reader + asked
        reader = reader + asked + carry_all(trace, layer, written)
    return Slopes(found, reader)


def read_slopes(trace: Trace, layer: int, reader: Reader) -> Float[Tensor, "pos neuron"]:
    """Return how far a reader's number moves for a unit of each activation of a layer."""
    pattern = "pos d_model, neuron d_model -> pos neuron"
    slopes = einsum(reader, trace.model.answers[layer], pattern)
    if trace.mlp_post_scales is None:
        return slopes
    return slopes / rearrange(trace.mlp_post_scales[layer], "pos -> pos 1").to(slopes)


def carry_all(
    trace: Trace, layer: int, along: Float[Tensor, "... pos d_model"]
) -> Float[Tensor, "... pos d_model"]:
    """Take readers of what attention writes back to what stands before it, through all its heads."""
    attention = trace.model.attention[layer]
    values = attention.for_heads(attention.value)
    pattern = "... head pos d_head, head d_head d_model -> ... pos d_model"
    return einsum(seek(trace, layer, along), values, pattern)


def _ask(
    trace: Trace, layer: int, slopes: Float[Tensor, "pos neuron"], openings: ActivationSlopes
) -> Reader:
    """Take slopes of activations back through their scores to what the MLP reads."""
    model = trace.model
    by_score, by_gate = openings.of(layer)
    pattern = "pos neuron, neuron d_model -> pos d_model"
    asked = einsum(slopes * by_score.to(slopes), model.questions[layer], pattern)
    if by_gate is not None and model.gates is not None:
        asked = asked + einsum(slopes * by_gate.to(slopes), model.gates[layer], pattern)
    return asked / rearrange(trace.scales[layer], "pos -> pos 1").to(asked)

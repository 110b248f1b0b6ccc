"""What the layers do to vectors: norm, score, open, write. Each in the dtype of what is handed in.

    normalise   x̂ = (x − mean) / sqrt(var + eps), or x / sqrt(mean x² + eps) for an RMSNorm
    score       scores q_n · x̂ + c_n, and the gates' scores where neurons have gates
    open_up     activations: f(score), with a gate f(gate score) × score
    write       Σ_n a_n w_n + b_out, through the norm an MLP writes through if there is one
    write_heads Σ_head mix · out + b_O, likewise
    cap         logits as the model gives them: cap · tanh(logit / cap) where the family does so

>>> import ffnprobe as fp
>>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
>>> scores, gates = score_questions(trace.model, 3, normalise(trace.model, trace.before_mlp[3]))
>>> bool((scores - trace.scores[3]).abs().max() < 1e-4)
True
"""

from collections.abc import Callable
from functools import partial

import torch
from einops import einsum
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from ffnprobe.models.model import Model

ACTIVATION_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu_new": partial(functional.gelu, approximate="tanh"),
    "gelu": functional.gelu,
    "relu": torch.relu,
    "silu": functional.silu,
}
Stream = Float[Tensor, "... d_model"]


def normalise(model: Model, stream: Stream) -> Stream:
    """Return x̂: the stream through a norm without gain and shift."""
    width, eps = stream.shape[-1:], model.config.eps
    if model.config.is_rms:
        return functional.rms_norm(stream, width, eps=eps)
    return functional.layer_norm(stream, width, eps=eps)


def measure_scale(model: Model, stream: Stream) -> Float[Tensor, "..."]:
    """Return what a norm divides the stream by."""
    centred = model.centre(stream)
    return (centred.square().mean(dim=-1) + model.config.eps).sqrt()


def score_questions(
    model: Model, layer: int, seen: Stream
) -> tuple[Float[Tensor, "... neuron"], Float[Tensor, "... neuron"] | None]:
    """Put a layer's questions to normalised vectors: scores, and the gates' scores if it has gates."""
    scores = functional.linear(
        seen, model.questions[layer].to(seen), model.question_biases[layer].to(seen)
    )
    if model.gates is None or model.gate_biases is None:
        return scores, None
    gates = functional.linear(seen, model.gates[layer].to(seen), model.gate_biases[layer].to(seen))
    return scores, gates


def open_up(
    model: Model, scores: Float[Tensor, "... neuron"], gates: Float[Tensor, "... neuron"] | None
) -> Float[Tensor, "... neuron"]:
    """Turn scores into activations."""
    activate = ACTIVATION_FUNCTIONS[model.config.activation]
    return activate(scores) if gates is None else activate(gates) * scores


def write(model: Model, layer: int, activations: Float[Tensor, "... neuron"]) -> Stream:
    """Return what a layer's MLP adds to the stream."""
    return finish_write(model, layer, add_up(model, layer, activations))


def add_up(model: Model, layer: int, activations: Float[Tensor, "... neuron"]) -> Stream:
    """Add up a layer's answers and its bias, before the norm an MLP may write through."""
    rows = model.rows[layer].to(activations)
    total = einsum(activations, rows, "... neuron, neuron d_model -> ... d_model")
    return total + model.answer_biases[layer].to(activations)


def finish_write(model: Model, layer: int, total: Stream) -> Stream:
    """Take what an MLP's answers add up to through the norm it writes through, if there is one."""
    return write_through(model, total, model.mlp_post_gain(layer))


def write_through(model: Model, total: Stream, gain: Float[Tensor, " d_model"] | None) -> Stream:
    """Take what is written through the norm that has this gain, if there is one."""
    return total if gain is None else normalise(model, total) * gain.to(total)


def write_heads(model: Model, layer: int, mixes: Float[Tensor, "... head d_head"]) -> Stream:
    """Return what a layer's attention adds to the stream, from what its heads mixed."""
    a = model.attention[layer]
    total = einsum(mixes, a.out.to(mixes), "... head d_head, head d_head d_model -> ... d_model")
    return write_through(model, total + a.out_bias.to(mixes), a.post_gain)


def cap(model: Model, logits: Tensor) -> Tensor:
    """Return logits as the model gives them."""
    most = model.config.logit_cap
    return logits if most is None else torch.tanh(logits / most) * most


def mask_unseen(
    start: int, length: int, window: int | None, device: torch.device
) -> Bool[Tensor, "query key"]:
    """Mark the keys that each query from `start` on does not see: ahead of it, or past the window."""
    queries = torch.arange(start, start + length, device=device)[:, None]
    back = queries - torch.arange(start + length, device=device)
    return (back < 0) if window is None else (back < 0) | (back >= window)


def rotate(
    vectors: Float[Tensor, "... pos head d_head"],
    cosines: Float[Tensor, "pos rotated"],
    sines: Float[Tensor, "pos rotated"],
) -> Float[Tensor, "... pos head d_head"]:
    """Turn the first dimensions of queries or keys by their position, the rest left alone."""
    width = cosines.shape[-1]
    first, second = vectors[..., : width // 2], vectors[..., width // 2 : width]
    cosine, sine = (part[:, None].to(vectors).chunk(2, dim=-1) for part in (cosines, sines))
    turned = (first * cosine[0] - second * sine[0], second * cosine[1] + first * sine[1])
    return torch.cat([*turned, vectors[..., width:]], dim=-1)

"""Three ways to the logits of a few tokens: Hugging Face's, TransformerLens's and ours.

They read one configuration in three codes. Where they differ, one of them has misread it, and every
number after that is wrong in silence: so they are compared once for each model, when it is first run.
Ours runs in the checkpoint's own terms, with nothing folded but attention's norm, in the time of a
forward pass of eight tokens.

Limits: eight tokens do not show a window longer than they are, or how positions far out are told.
"""

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from ffnprobe.errors import ModelNotLoaded
from ffnprobe.models.arithmetic import cap, normalise, open_up, rotate, write_through
from ffnprobe.models.attention import Attention, fold_attention
from ffnprobe.models.model import Model

TOKENS, STRIDE, WITHIN = 8, 7919, 1e-3
Turns = tuple[Tensor, Tensor] | None


def few_tokens(model: Model) -> list[int]:
    """Choose token ids spread over the vocabulary."""
    many = min(TOKENS, model.config.positions)
    return [(1 + order * STRIDE) % model.config.vocab for order in range(many)]


def check_agreement(model: Model, logits: dict[str, Float[Tensor, "pos vocab"]]) -> None:
    """Raise unless all logits are one; where they overflow there is nothing to compare."""
    named = list(logits.items())
    (first, wanted) = named[0]
    if not wanted.isfinite().all():
        return
    for name, found in named[1:]:
        off = float((found - wanted).abs().max())
        if not off <= WITHIN * max(1.0, float(wanted.abs().max())):
            raise ModelNotLoaded(
                f"{model.name} is not run right: on {len(wanted)} tokens the logits of {name} are off "
                f"by {off:.2g} from those of {first}, so one of them misreads its configuration.",
                remedy="report its config.json; the verbs that read weights alone (read, survey) "
                "may be wrong for it too",
            )


def logits_of(model: Model, ids: list[int], turns: list[Turns]) -> Float[Tensor, "pos vocab"]:
    """Run token ids by our own arithmetic; `turns` are each layer's cosines and sines of positions."""
    c, lay = model.config, model.layout
    rows = torch.tensor(ids, device=model.device)
    stream = model.raw(f"{lay.embedding}.weight")[rows] * c.embedding_scale
    if model.position_embedding is not None:
        stream = stream + model.position_embedding[: len(ids)]
    for layer in range(c.layers):
        attention = fold_attention(model, layer)
        after = stream + _attend(model, attention, normalise(model, stream), turns[layer])
        read = _norm(model, stream if c.is_parallel else after, lay.of(layer, lay.mlp_norm))
        gates = _apply(model, layer, lay.gate, read) if lay.gate else None
        activations = open_up(model, _apply(model, layer, lay.up, read), gates)
        written = _apply(model, layer, lay.down, activations)
        stream = after + write_through(model, written, model.mlp_post_gain(layer))
    return cap(model, functional.linear(_norm(model, stream, lay.final_norm), model.head))


def _norm(model: Model, stream: Tensor, name: str) -> Tensor:
    seen = normalise(model, stream) * model.gain(name)
    shift = model.shift(name)
    return seen if shift is None else seen + shift


def _apply(model: Model, layer: int, part: str, vectors: Tensor) -> Tensor:
    weight, bias = model.linear(layer, part)
    found = vectors @ weight
    return found if bias is None else found + bias


def _attend(model: Model, a: Attention, seen: Float[Tensor, "pos d_model"], turns: Turns) -> Tensor:
    """Return what one layer's attention writes."""

    def read(rows: Tensor, bias: Tensor, gain: Tensor | None, *, turned: bool) -> Tensor:
        pattern = "pos d_model, head d_head d_model -> pos head d_head"
        found = einsum(seen, rows, pattern) + bias
        found = found if gain is None else normalise(model, found) * gain
        found = rotate(found, *turns) if turned and turns is not None else found
        return found.repeat_interleave(len(a.query) // len(rows), dim=1)

    query = read(a.query, a.query_bias, a.query_gain, turned=True)
    key = read(a.key, a.key_bias, a.key_gain, turned=True)
    value = read(a.value, a.value_bias, None, turned=False)
    pattern = "query head d_head, key head d_head -> head query key"
    scores = einsum(query, key, pattern) * a.scale
    if a.cap is not None:
        scores = torch.tanh(scores / a.cap) * a.cap
    where = torch.arange(len(seen), device=seen.device)
    back = where[:, None] - where
    unseen = (back < 0) if a.window is None else (back < 0) | (back >= a.window)
    looks = torch.softmax(scores.masked_fill(unseen, float("-inf")), dim=-1)
    mixed = einsum(looks, value, "head query key, key head d_head -> query head d_head")
    total = einsum(mixed, a.out, "pos head d_head, head d_head d_model -> pos d_model")
    return write_through(model, total + a.out_bias, a.post_gain)

"""Our own forward pass: a model run in the checkpoint's own terms, without TransformerLens.

It sees and replaces what the hooks see, by the same names (`ffnprobe.models.bridge` lists them). The
libraries behind the hooks take seconds to import; this pass needs torch alone. It is compared with
Hugging Face and TransformerLens before it is trusted: for every family by the tests, and for every
model by `ffnprobe.models.verification`.

Limits: in fp32 its numbers differ from the hooks' by about 1e-6 of the largest.
"""

from collections.abc import Callable, Mapping, Sequence
from weakref import WeakKeyDictionary

import torch
from einops import einsum, rearrange
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from ffnprobe.models.arithmetic import cap, mask_unseen, normalise, open_up, rotate, write_through
from ffnprobe.models.model import Model

# Sees a tensor on its way, and may return another to continue with.
Tap = Callable[[Tensor], Tensor | None]
Taps = Mapping[tuple[str, int], Tap]
# A layer's rotary frequencies, and what its cosines and sines are multiplied by.
Rotary = tuple[tuple[float, ...], float]
# Cosines and sines of positions; None where positions are embedded.
Angles = tuple[Float[Tensor, "pos rotated"], Float[Tensor, "pos rotated"]]
Turns = Angles | None
Linear = tuple[Float[Tensor, "wide high"], Float[Tensor, " high"] | None]

_linears: "WeakKeyDictionary[Model, dict[tuple[int, str], Linear]]" = WeakKeyDictionary()


def run_own(
    model: Model, ids: Int[Tensor, "batch pos"], taps: Taps, turns: Sequence[Turns]
) -> Float[Tensor, "batch pos vocab"]:
    """Run token ids and return the logits; `turns` are each layer's cosines and sines of positions."""

    def see(name: str, tensor: Tensor) -> Tensor:
        tap = taps.get((name, layer))
        changed = None if tap is None else tap(tensor)
        return tensor if changed is None else changed

    c, lay = model.config, model.layout
    rows = model.weights[f"{lay.embedding}.weight"]
    stream = rows[ids.to(rows.device)].to(device=model.device, dtype=torch.float32)
    stream = stream * c.embedding_scale
    if model.position_embedding is not None:
        stream = stream + model.position_embedding[: ids.shape[1]]
    for layer in range(c.layers):
        stream = see("before_attention", stream)
        after = stream + _attend(model, layer, stream, turns[layer], see)
        read = see("before_mlp", stream if c.is_parallel else after)
        seen = _norm(model, read, lay.of(layer, lay.mlp_norm))
        scores = see("scores", _apply(model, layer, lay.up, seen))
        gates = see("gate_scores", _apply(model, layer, lay.gate, seen)) if lay.gate else None
        activations = see("activations", open_up(model, scores, gates))
        total = see("mlp_totals", _apply(model, layer, lay.down, activations))
        stream = after + write_through(model, total, model.mlp_post_gain(layer))
    layer = 0  # by which the hooks at the end are asked for
    seen = _norm(model, see("final", stream), lay.final_norm)
    return cap(model, functional.linear(seen, model.head))


def turn(model: Model, rotary: Rotary, length: int, *, first: int = 0) -> Angles:
    """Return the cosines and sines of positions, from the frequencies they are turned by."""
    frequencies, scaling = rotary
    where = torch.arange(first, length, device=model.device, dtype=torch.float32)
    angles = where[:, None] * torch.tensor(frequencies, device=model.device)
    both = torch.cat([angles, angles], dim=-1)
    return both.cos() * scaling, both.sin() * scaling


def _attend(
    model: Model, layer: int, stream: Tensor, turns: Turns, see: Callable[[str, Tensor], Tensor]
) -> Float[Tensor, "batch pos d_model"]:
    """Return what one layer's attention writes."""
    c, lay = model.config, model.layout
    query, key, value = _read_heads(
        model, layer, _norm(model, stream, lay.of(layer, lay.attention_norm))
    )
    if c.has_head_norms:
        query = normalise(model, query) * model.gain(lay.of(layer, lay.query_norm))
        key = normalise(model, key) * model.gain(lay.of(layer, lay.key_norm))
    if turns is not None:
        query, key = rotate(query, *turns), rotate(key, *turns)
    each = c.heads // c.kv_heads
    key, value = (shared.repeat_interleave(each, dim=2) for shared in (key, value))
    pattern = "batch query head d_head, batch key head d_head -> batch head query key"
    scores = einsum(query, key, pattern) * c.attention_scale(layer)
    if c.attention_cap is not None:
        scores = torch.tanh(scores / c.attention_cap) * c.attention_cap
    unseen = mask_unseen(0, stream.shape[1], c.window(layer), stream.device)
    looks = see("patterns", torch.softmax(scores.masked_fill(unseen, float("-inf")), dim=-1))
    pattern = "batch head query key, batch key head d_head -> batch query head d_head"
    mixes = see("mixes", einsum(looks, value, pattern))
    joined = rearrange(mixes, "batch pos head d_head -> batch pos (head d_head)")
    total = see("attention_totals", _apply(model, layer, lay.out, joined))
    norm = lay.attention_post_norm
    return write_through(model, total, model.gain(lay.of(layer, norm)) if norm else None)


def _read_heads(
    model: Model, layer: int, seen: Float[Tensor, "batch pos d_model"]
) -> list[Float[Tensor, "batch pos head d_head"]]:
    """Return each position's queries, keys and values."""
    c, lay = model.config, model.layout
    if lay.fused:
        fused = _apply(model, layer, lay.fused, seen)
        order = f"batch pos {lay.fused_order} -> kind batch pos head d_head"
        return list(rearrange(fused, order, kind=3, head=c.heads))
    order = "batch pos (head d_head) -> batch pos head d_head"
    parts = (lay.query, lay.key, lay.value)
    read = (_apply(model, layer, str(part), seen) for part in parts)
    return [rearrange(each, order, d_head=c.d_head) for each in read]


def _norm(model: Model, stream: Tensor, name: str) -> Tensor:
    seen = normalise(model, stream) * model.gain(name)
    shift = model.shift(name)
    return seen if shift is None else seen + shift


def _apply(model: Model, layer: int, part: str, vectors: Tensor) -> Tensor:
    weight, bias = _linear(model, layer, part)
    found = vectors @ weight
    return found if bias is None else found + bias


def _linear(model: Model, layer: int, part: str) -> Linear:
    """Return a matrix and its bias in fp32, kept for the next pass if it is this one that runs the model."""
    if model.hooks:
        return model.linear(layer, part)
    held = _linears.setdefault(model, {})
    if (layer, part) not in held:
        held[layer, part] = model.linear(layer, part)
    return held[layer, part]

"""One layer, step by step: the only place that knows how a layer computes.

With x̂ the norm of the stream x, on the weights as they are on disk:

    query, key, value   W x̂ + b; queries and keys normalised head by head and rotated, where the family does so
    pattern             softmax over keys of cap(query · key · scale): nothing ahead, nothing past the window
    attention           x ← x + Σ_head out · Σ_key pattern · value + b_O
    MLP                 x ← x + Σ_n a_n w_n + b_out,  a_n = f(score), with a gate f(gate score) × score

What is written passes the post-norms that a family has; where a layer is parallel, its MLP reads what its
attention read. `step` takes many streams through a layer at once, their matrix products in common: whole
prompts, variants of one prompt from a position on, or the ends of several prompts. It decides nothing else:
which rows, from which layer and with which change is its callers' business.

Each number is in the dtype of what is handed in, and gradients pass through. Limits: exact in real
arithmetic; in fp32 a logit differs by about 1e-5 from that of another order of operations.

>>> import ffnprobe as fp
>>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
>>> model, at = trace.model, torch.arange(len(trace))[None]
>>> (after,) = step(model, 3, [trace.before_attention[3][None]], [at])
>>> bool((after[0] - trace.before_attention[4]).abs().max() < 1e-4)
True
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch
from einops import einsum, rearrange
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from ffnprobe.models.folding import LayerWeights, Linear, Norm
from ffnprobe.models.model import Model

ACTIVATION_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu_new": partial(functional.gelu, approximate="tanh"),
    "gelu": functional.gelu,
    "relu": torch.relu,
    "silu": functional.silu,
}
# What TransformerLens calls the hooks of a layer.
HOOKS = {
    "before_attention": "hook_resid_pre", "before_mlp": "ln2.hook_in", "scores": "mlp.hook_pre",
    "activations": "mlp.hook_post", "z": "attn.hook_z", "patterns": "attn.hook_pattern",
}  # fmt: skip
# With a gate, TransformerLens calls the gate's score `hook_pre` and the question's `hook_pre_linear`.
GATED_HOOKS = {"scores": "mlp.hook_pre_linear", "gate_scores": "mlp.hook_pre"}
POST_HOOKS = {"attention_totals": "ln1_post.hook_in", "mlp_totals": "ln2_post.hook_in"}
FINAL_HOOKS = {"final": "ln_final.hook_in"}
Vectors = Float[Tensor, "... d_model"]
Heads = Float[Tensor, "... head d_head"]
Neurons = Float[Tensor, "... neuron"]
Stream = Float[Tensor, "variant pos d_model"]
Positions = Int[Tensor, "#variant pos"]
# Cosines and sines of positions, for each pair of dimensions that is rotated.
Angles = tuple[Float[Tensor, "#variant pos pair"], Float[Tensor, "#variant pos pair"]]
# Sees a tensor on its way, and may return another to continue with. Names are those of `ffnprobe.models.bridge`.
Hook = Callable[[Tensor], Tensor | None]


def hooks_of(model: Model) -> dict[str, str]:
    """Name the hooks this model has, each with TransformerLens's name for it."""
    gated = GATED_HOOKS if model.config.is_gated else {}
    post = POST_HOOKS if model.config.has_post_norms else {}
    inside = {name: f"blocks.{{layer}}.{hook}" for name, hook in (HOOKS | gated | post).items()}
    return inside | FINAL_HOOKS


class Past(NamedTuple):
    """Keys, rotated, and values before a stream: one copy for all its variants, or one for each."""

    keys: Float[Tensor, "*variant kv_head key d_head"]
    values: Float[Tensor, "*variant kv_head key d_head"]
    at: Int[Tensor, "#variant key"]


def step(
    model: Model,
    layer: int,
    streams: Sequence[Stream],
    at: Sequence[Positions],
    *,
    past: Sequence[Past | None] | None = None,
    hooks: Sequence[Mapping[str, Hook]] | None = None,
    drop: Sequence[int] | None = None,
) -> list[Stream]:
    """Take streams at their positions through one layer.

    A stream may have a past, and hooks of its own. Of each so many first positions are dropped once heads
    have attended to them: for the last layer, of which only some positions are read.
    """
    shapes = [stream.shape[:2] for stream in streams]

    def see(name: str, rows: Tensor) -> Tensor:
        if hooks is None or not any(name in own for own in hooks):
            return rows
        parts = _split(rows, shapes)
        seen = [own[name](part) if name in own else None for own, part in zip(hooks, parts, strict=True)]  # fmt: skip
        if all(part is None for part in seen):
            return rows
        return _join([new if new is not None else old for new, old in zip(seen, parts, strict=True)])  # fmt: skip

    block, is_parallel = model.blocks[layer], model.config.is_parallel
    rows = see("before_attention", _join(streams))
    seen = normalise(model, rows, *block.attention_norm)
    keys, values = (_split(read, shapes) for read in _read_keys(model, block, seen))
    angles = [measure_angles(model, layer, own) for own in at]
    keys = [_rotate(key, own) for key, own in zip(keys, angles, strict=True)]
    query_at = list(at)
    if drop is not None and any(drop):
        query_at = [own[:, late:] for own, late in zip(at, drop, strict=True)]
        angles = [measure_angles(model, layer, own) for own in query_at]
        parts = [_split(each, shapes) for each in (rows, seen)]
        rows, seen = (_join([part[:, late:] for part, late in zip(each, drop, strict=True)]) for each in parts)  # fmt: skip
        shapes = [torch.Size((many, long - late)) for (many, long), late in zip(shapes, drop, strict=True)]  # fmt: skip
    queries = _split(_read_heads(model, block.query, block.query_gain, seen), shapes)
    z = [
        _attend(
            model, layer, _rotate(queries[n], angles[n]), keys[n], values[n],
            query_at[n], at[n], None if past is None else past[n],
            None if hooks is None else hooks[n].get("patterns"),
        )
        for n in range(len(shapes))
    ]  # fmt: skip
    total = see("attention_totals", _apply(block.out, see("z", _join(z)).flatten(-2)))
    after = rows + _write_through(model, total, block.attention_post_gain)
    read = normalise(model, see("before_mlp", rows if is_parallel else after), *block.mlp_norm)
    scores = see("scores", _apply(block.up, read))
    gates = None if block.gate is None else see("gate_scores", _apply(block.gate, read))
    activations = see("activations", activate_neurons(model, scores, gates))
    total = see("mlp_totals", add_up(model, layer, activations))
    return _split(after + finish_write(model, layer, total), shapes)


def keep_past(model: Model, layer: int, stream: Stream, at: Positions) -> Past:
    """Return a layer's keys and values at these positions, one copy for each variant."""
    block = model.blocks[layer]
    keys, values = _read_keys(model, block, normalise(model, stream, *block.attention_norm))
    order = "variant pos head d_head -> variant head pos d_head"
    rotated = _rotate(keys, measure_angles(model, layer, at))
    return Past(rearrange(rotated, order), rearrange(values, order), at)


def _join(parts: Sequence[Float[Tensor, "variant pos ..."]]) -> Float[Tensor, "row ..."]:
    """Put the rows of all streams one after the other."""
    rows = [part.flatten(0, 1) for part in parts]
    return rows[0] if len(rows) == 1 else torch.cat(rows)


def _split(rows: Float[Tensor, "row ..."], shapes: Sequence[torch.Size]) -> list[Tensor]:
    """Give rows back to the streams they are of."""
    parts = torch.split(rows, [many * long for many, long in shapes])
    inner = rows.shape[1:]
    return [part.reshape(*shape, *inner) for part, shape in zip(parts, shapes, strict=True)]


def _read_heads(model: Model, linear: Linear, gain: Tensor | None, seen: Vectors) -> Heads:
    """Return queries, keys or values, normalised head by head where they have a gain for it."""
    heads = torch.unflatten(_apply(linear, seen), -1, (-1, model.config.d_head))
    return heads if gain is None else normalise(model, heads, gain)


def _read_keys(model: Model, block: LayerWeights, seen: Vectors) -> tuple[Heads, Heads]:
    keys = _read_heads(model, block.key, block.key_gain, seen)
    return keys, _read_heads(model, block.value, None, seen)


def _apply(linear: Linear, vectors: Float[Tensor, "... wide"]) -> Float[Tensor, "... high"]:
    weight, bias = linear
    shift = None if bias is None else bias.to(vectors)
    return functional.linear(vectors, weight.mT.to(vectors), shift)


def measure_angles(model: Model, layer: int, at: Positions) -> Angles | None:
    """Return the cosines and sines by which positions are rotated; None where they are embedded."""
    if not model.rotary:
        return None
    frequencies, scaling = model.rotary[layer]
    angles = at[..., None].float() * frequencies
    return angles.cos() * scaling, angles.sin() * scaling


def _rotate(vectors: Heads, angles: Angles | None) -> Heads:
    """Rotate the first dimensions of queries or keys, pair by pair; the rest is left alone."""
    if angles is None:
        return vectors
    cosines, sines = (part[:, :, None].to(vectors) for part in angles)
    half = cosines.shape[-1]
    first, second, rest = vectors.tensor_split((half, 2 * half), dim=-1)
    rotated = (first * cosines - second * sines, second * cosines + first * sines, rest)
    return torch.cat(rotated, dim=-1)


def _attend(
    model: Model,
    layer: int,
    query: Float[Tensor, "variant query head d_head"],
    key: Float[Tensor, "variant key kv_head d_head"],
    value: Float[Tensor, "variant key kv_head d_head"],
    query_at: Positions,
    key_at: Positions,
    past: Past | None,
    hook: Hook | None,
) -> Float[Tensor, "variant query head d_head"]:
    """Return z, the values that heads attend to, weighted; queries may begin later than keys do."""
    order = "variant key head d_head -> variant head key d_head"
    key, value, before = rearrange(key, order), rearrange(value, order), 0
    if past is not None:
        here = key_at.expand(len(past.at), -1)
        key_at = torch.cat([past.at.expand(len(key_at), -1), here], dim=-1)
        if past.keys.ndim == key.ndim:
            key, value = torch.cat([past.keys, key], dim=2), torch.cat([past.values, value], dim=2)
            past = None
        else:
            before = past.keys.shape[1]
    # Heads that share a key share a product.
    order = "variant query (kv_head each) d_head -> variant kv_head each query d_head"
    query = rearrange(query, order, kv_head=model.config.kv_heads)
    compare = "variant kv_head each query d_head, {}kv_head key d_head -> variant kv_head each query key"  # fmt: skip
    scores = einsum(query, key, compare.format("variant "))
    if past is not None:
        # One copy serves all variants.
        scores = torch.cat([einsum(query, past.keys, compare.format("")), scores], dim=-1)
    scores = scores * model.config.attention_scale(layer)
    scores, windows = _cap(scores, model.config.attention_cap), model.config.windows
    window = windows[layer] if windows else None
    distance = query_at[:, :, None] - key_at[:, None]
    unseen = (distance < 0) if window is None else (distance < 0) | (distance >= window)
    pattern = torch.softmax(scores.masked_fill(unseen[:, None, None], float("-inf")), dim=-1)
    if hook is not None and (other := hook(pattern.flatten(1, 2))) is not None:
        pattern = other.reshape(pattern.shape)
    weigh = (
        "variant kv_head each query key, {}kv_head key d_head -> variant query kv_head each d_head"
    )
    z = einsum(pattern[..., before:], value, weigh.format("variant "))
    if past is not None:
        z = z + einsum(pattern[..., :before], past.values, weigh.format(""))
    return z.flatten(2, 3)


def normalise(
    model: Model, stream: Vectors, gain: Tensor | None = None, shift: Tensor | None = None
) -> Vectors:
    """Return x̂, vectors through a norm: without gain and shift where they are not given."""
    width, eps = stream.shape[-1:], model.config.eps
    weight, bias = (None if one is None else one.to(stream) for one in (gain, shift))
    if model.config.is_rms:
        return functional.rms_norm(stream, width, weight, eps)
    return functional.layer_norm(stream, width, weight, bias, eps)


def measure_scale(model: Model, stream: Vectors) -> Float[Tensor, "..."]:
    """Return what a norm divides the stream by."""
    centred = model.centre(stream)
    return (centred.square().mean(dim=-1) + model.config.eps).sqrt()


def score_questions(model: Model, layer: int, seen: Vectors) -> tuple[Neurons, Neurons | None]:
    """Put a layer's questions to normalised vectors: scores, and the gates' scores if it has gates."""
    block = model.blocks[layer]
    read = _scale(seen, block.mlp_norm)
    return _apply(block.up, read), None if block.gate is None else _apply(block.gate, read)


def _scale(seen: Vectors, norm: Norm) -> Vectors:
    """Take x̂ through the gain and the shift of a norm."""
    gain, shift = norm
    return seen * gain.to(seen) if shift is None else seen * gain.to(seen) + shift.to(seen)


def activate_neurons(model: Model, scores: Neurons, gates: Neurons | None) -> Neurons:
    """Turn scores into activations."""
    activate = ACTIVATION_FUNCTIONS[model.config.activation]
    return activate(scores) if gates is None else activate(gates) * scores


def write(model: Model, layer: int, activations: Neurons) -> Vectors:
    """Return what a layer's MLP adds to the stream."""
    return finish_write(model, layer, add_up(model, layer, activations))


def add_up(model: Model, layer: int, activations: Neurons) -> Vectors:
    """Add up a layer's answers and its bias, before the norm an MLP may write through."""
    return _apply(model.blocks[layer].down, activations)


def finish_write(model: Model, layer: int, total: Vectors) -> Vectors:
    """Take what an MLP's answers add up to through the norm it writes through, if there is one."""
    return _write_through(model, total, model.blocks[layer].mlp_post_gain)


def _write_through(model: Model, total: Vectors, gain: Float[Tensor, " d_model"] | None) -> Vectors:
    return total if gain is None else normalise(model, total, gain)


def write_heads(model: Model, layer: int, z: Heads) -> Vectors:
    """Return what a layer's attention adds to the stream, from the outputs of its heads."""
    block = model.blocks[layer]
    return _write_through(model, _apply(block.out, z.flatten(-2)), block.attention_post_gain)


def unembed(model: Model, seen: Vectors) -> Float[Tensor, "... vocab"]:
    """Return the logits of normalised final streams, as the model gives them."""
    # By the head as it is on disk: folding it copies the largest matrix of a model.
    read = _scale(seen, (model.final_gain, model.final_shift))
    return cap(model, functional.linear(read, model.head.to(seen)))


def cap(model: Model, logits: Tensor) -> Tensor:
    """Return logits as the model gives them: cap · tanh(logit / cap) where the family does so."""
    return _cap(logits, model.config.logit_cap)


def _cap(numbers: Tensor, most: float | None) -> Tensor:
    return numbers if most is None else torch.tanh(numbers / most) * most

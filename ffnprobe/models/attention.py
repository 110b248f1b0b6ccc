"""One layer's attention, its norm folded in, with what the families add to it.

    query, key   (W x̂ + b), normalised head by head where the family does so, then rotated by position
    looks        softmax over keys of cap(query · key · scale), nothing ahead, nothing past the window
    written      Σ_head out · Σ_key looks · value + b_O, through the family's post-norm if there is one

Keys and values may be fewer than heads: each is read by `heads / kv_heads` heads in a row.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

if TYPE_CHECKING:
    from ffnprobe.models.model import Model


@dataclass(frozen=True)
class Attention:
    """One layer's attention, reading x̂ and writing to the residual stream."""

    query: Float[Tensor, "head d_head d_model"]
    key: Float[Tensor, "kv_head d_head d_model"]
    value: Float[Tensor, "kv_head d_head d_model"]
    query_bias: Float[Tensor, "head d_head"]
    key_bias: Float[Tensor, "kv_head d_head"]
    value_bias: Float[Tensor, "kv_head d_head"]
    query_gain: Float[Tensor, " d_head"] | None
    key_gain: Float[Tensor, " d_head"] | None
    out: Float[Tensor, "head d_head d_model"]
    out_bias: Float[Tensor, " d_model"]
    post_gain: Float[Tensor, " d_model"] | None
    scale: float
    cap: float | None
    window: int | None

    def for_heads(self, shared: Float[Tensor, "kv_head ..."]) -> Float[Tensor, "head ..."]:
        """Repeat what belongs to keys or values for every head that reads them."""
        return shared.repeat_interleave(len(self.query) // len(shared), dim=0)


def fold_attention(model: "Model", layer: int) -> Attention:
    """Fold the norm before a layer's attention into what reads it."""
    c, lay = model.config, model.layout
    if lay.fused:
        rows, biases = model.fold(layer, lay.attention_norm, lay.fused)
        order, sizes = lay.fused_order, {"kind": 3, "head": c.heads}
        split = rearrange(rows, f"{order} d -> kind head d_head d", **sizes)
        bias = rearrange(biases, f"{order} -> kind head d_head", **sizes)
        read = [(split[kind], bias[kind]) for kind in range(3)]
    else:
        read = []
        for part in (lay.query, lay.key, lay.value):
            rows, biases = model.fold(layer, lay.attention_norm, str(part))
            split = rearrange(rows, "(head d_head) d -> head d_head d", d_head=c.d_head)
            read.append((split, rearrange(biases, "(head d_head) -> head d_head", d_head=c.d_head)))
    weight, out_bias = model.linear(layer, lay.out)
    (query, query_bias), (key, key_bias), (value, value_bias) = read
    return Attention(
        query=query, key=key, value=value,
        query_bias=query_bias, key_bias=key_bias, value_bias=value_bias,
        query_gain=model.gain(lay.of(layer, lay.query_norm)) if c.has_head_norms else None,
        key_gain=model.gain(lay.of(layer, lay.key_norm)) if c.has_head_norms else None,
        out=rearrange(weight, "(head d_head) d -> head d_head d", head=c.heads),
        out_bias=torch.zeros(c.d_model, device=model.device) if out_bias is None else out_bias,
        post_gain=(
            model.gain(lay.of(layer, lay.attention_post_norm)) if lay.attention_post_norm else None
        ),
        scale=c.attention_scale(layer),
        cap=c.attention_cap,
        window=c.window(layer),
    )  # fmt: skip

"""Fold a norm into the weights that read it, once, in fp32, leaving what was handed in alone.

LayerNorm: with x̂ = (x − mean) / sqrt(var + eps), a layer that reads γ ⊙ x̂ + β through a matrix W
with bias b reads x̂ through γ ⊙ W with bias b + β · W. As x̂ has mean zero, each column of γ ⊙ W may
also be centred over d_model without changing anything; centred, it is the direction x̂ is really
compared to. RMSNorm: x̂ = x / sqrt(mean x² + eps) has a mean, and there is no β; nothing is centred.

Limits: exact in real arithmetic; in fp32 the folded score differs from the model's by about 1e-6.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from einops import einsum, rearrange, reduce
from jaxtyping import Float
from torch import Tensor

from ffnprobe.errors import ModelNotLoaded

if TYPE_CHECKING:
    from ffnprobe.models.model import Model

CENTRED_WITHIN = 1e-4


def fold_reader(
    weight: Float[Tensor, "d_model out"],
    bias: Float[Tensor, " out"] | None,
    gain: Float[Tensor, " d_model"],
    shift: Float[Tensor, " d_model"] | None,
    *,
    dtype: torch.dtype = torch.float32,
) -> tuple[Float[Tensor, "out d_model"], Float[Tensor, " out"]]:
    """Fold a norm into the matrix that reads it: one row per output. Without a shift it is RMSNorm."""
    weight, gain = weight.to(dtype), gain.to(dtype)
    rows = rearrange(weight, "d_model out -> out d_model") * gain
    rows = rows.contiguous()
    if shift is None:
        folded_bias = torch.zeros(len(rows), dtype=dtype, device=rows.device)
    else:
        rows -= reduce(rows, "out d_model -> out 1", "mean")
        folded_bias = einsum(shift.to(dtype), weight, "d_model, d_model out -> out")
    return rows, folded_bias if bias is None else folded_bias + bias.to(dtype)


def check_centred(rows: Float[Tensor, "... d_model"], *, name: str) -> None:
    """Raise unless every row has mean zero over d_model, within rounding of its own size."""
    mean = reduce(rows, "... d_model -> ...", "mean").abs()
    size = torch.linalg.vector_norm(rows, ord=1, dim=-1) / rows.shape[-1]
    worst = float((mean - CENTRED_WITHIN * size).max())
    if not worst <= CENTRED_WITHIN * 1e-4:
        raise ModelNotLoaded(f"{name}: a folded row is off centre by {worst:.1e}.")


@dataclass(frozen=True)
class Attention:
    """One layer's attention, reading x̂ and writing to the residual stream.

    Keys and values may be fewer than heads: each is read by `heads / kv_heads` heads in a row.
    """

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

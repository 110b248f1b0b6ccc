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
# A matrix and its bias; a norm's gain and shift.
Linear = tuple[Float[Tensor, "wide high"], Float[Tensor, " high"] | None]
Norm = tuple[Float[Tensor, " d_model"], Float[Tensor, " d_model"] | None]


def fold_reader(
    weight: Float[Tensor, "d_model out"],
    bias: Float[Tensor, " out"] | None,
    gain: Float[Tensor, " d_model"],
    shift: Float[Tensor, " d_model"] | None,
) -> tuple[Float[Tensor, "out d_model"], Float[Tensor, " out"]]:
    """Fold a norm into the matrix that reads it: one row per output. Without a shift it is RMSNorm."""
    weight, gain = weight.float(), gain.float()
    rows = (rearrange(weight, "d_model out -> out d_model") * gain).contiguous()
    if shift is None:
        folded_bias = torch.zeros(len(rows), device=rows.device)
    else:
        rows -= reduce(rows, "out d_model -> out 1", "mean")
        folded_bias = einsum(shift.float(), weight, "d_model, d_model out -> out")
    return rows, folded_bias if bias is None else folded_bias + bias.float()


def is_finite(tensor: Tensor) -> bool:
    """Say whether no number is NaN or infinite."""
    # A sum is finite whenever every number is and stays far below overflow: cheap, then exact.
    return bool(tensor.sum(dtype=torch.float32).isfinite() or tensor.isfinite().all())


def check_centred(rows: Float[Tensor, "... d_model"], *, name: str) -> None:
    """Raise unless every row has mean zero over d_model, within rounding of its own size."""
    mean = reduce(rows, "... d_model -> ...", "mean").abs()
    size = torch.linalg.vector_norm(rows, ord=1, dim=-1) / rows.shape[-1]
    worst = float((mean - CENTRED_WITHIN * size).max())
    if not worst <= CENTRED_WITHIN * 1e-4:
        raise ModelNotLoaded(f"{name}: a folded row is off centre by {worst:.1e}.")


@dataclass(frozen=True)
class LayerWeights:
    """One layer's weights as they are run, in fp32; not copied where they are so on disk."""

    attention_norm: Norm
    query: Linear
    key: Linear
    value: Linear
    query_gain: Float[Tensor, " d_head"] | None
    key_gain: Float[Tensor, " d_head"] | None
    out: Linear
    attention_post_gain: Float[Tensor, " d_model"] | None
    mlp_norm: Norm
    up: Linear
    gate: Linear | None
    down: Linear
    mlp_post_gain: Float[Tensor, " d_model"] | None


def read_layer(model: "Model", layer: int) -> LayerWeights:
    lay = model.layout

    def norm(name: str) -> Norm:
        return model.gain(lay.of(layer, name)), model.shift(lay.of(layer, name))

    def gain(name: str | None) -> Tensor | None:
        return model.gain(lay.of(layer, name)) if name else None

    if lay.fused:
        weight, bias = model.linear(layer, lay.fused)
        order, sizes = lay.fused_order, {"kind": 3, "head": model.config.heads}
        weights = rearrange(weight, f"d {order} -> kind d (head d_head)", **sizes)
        biases = [None] * 3 if bias is None else rearrange(bias, f"{order} -> kind (head d_head)", **sizes)  # fmt: skip
        query, key, value = zip(weights, biases, strict=True)
    else:
        query, key, value = (model.linear(layer, str(n)) for n in (lay.query, lay.key, lay.value))
    return LayerWeights(
        norm(lay.attention_norm), query, key, value, gain(lay.query_norm), gain(lay.key_norm),
        model.linear(layer, lay.out), gain(lay.attention_post_norm), norm(lay.mlp_norm),
        model.linear(layer, lay.up), model.linear(layer, lay.gate) if lay.gate else None,
        model.linear(layer, lay.down), gain(lay.mlp_post_norm),
    )  # fmt: skip


@dataclass(frozen=True)
class Attention:
    """One layer's OV: values, which read x̂, and the outputs of heads, which write to the residual stream.

    Values may be fewer than heads: each is read by `heads / kv_heads` heads in a row.
    """

    value: Float[Tensor, "kv_head d_head d_model"]
    value_bias: Float[Tensor, "kv_head d_head"]
    out: Float[Tensor, "head d_head d_model"]
    out_bias: Float[Tensor, " d_model"]
    post_gain: Float[Tensor, " d_model"] | None

    def for_heads(self, shared: Float[Tensor, "kv_head ..."]) -> Float[Tensor, "head ..."]:
        """Repeat what belongs to values for every head that reads them."""
        return shared.repeat_interleave(len(self.out) // len(shared), dim=0)


def fold_attention(model: "Model", layer: int) -> Attention:
    """Fold the norm before a layer's attention into the values that read it."""
    block, d_head = model.blocks[layer], model.config.d_head
    rows, biases = fold_reader(*block.value, *block.attention_norm)
    out, out_bias = block.out
    return Attention(
        value=rearrange(rows, "(head d_head) d -> head d_head d", d_head=d_head),
        value_bias=rearrange(biases, "(head d_head) -> head d_head", d_head=d_head),
        out=rearrange(out, "(head d_head) d -> head d_head d", d_head=d_head),
        out_bias=out.new_zeros(model.config.d_model) if out_bias is None else out_bias,
        post_gain=block.attention_post_gain,
    )

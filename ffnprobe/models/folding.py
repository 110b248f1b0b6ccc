"""Fold a norm into the weights that read it, once, in fp32, leaving what was handed in alone.

LayerNorm: with x̂ = (x − mean) / sqrt(var + eps), a layer that reads γ ⊙ x̂ + β through a matrix W
with bias b reads x̂ through γ ⊙ W with bias b + β · W. As x̂ has mean zero, each column of γ ⊙ W may
also be centred over d_model without changing anything; centred, it is the direction x̂ is really
compared to. RMSNorm: x̂ = x / sqrt(mean x² + eps) has a mean, and there is no β; nothing is centred.

Limits: exact in real arithmetic; in fp32 the folded score differs from the model's by about 1e-6.
"""

import torch
from einops import einsum, rearrange, reduce
from jaxtyping import Float
from torch import Tensor

from ffnprobe.errors import ModelNotLoaded

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

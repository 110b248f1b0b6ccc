"""The closed forms: which low-rank change of W_down answers new keys so and disturbs others least.

Rows as the residual stream reads them: k W is a layer's output (without b_out), C = E[kᵀ k].

    ROME       ΔW = (C⁻¹ k)ᵀ δ / (k C⁻¹ kᵀ)               one fact, k (W + ΔW) = k W + δ exactly
    MEMIT      ΔW = (λ C + Kᵀ K)⁻¹ Kᵀ R                    many facts, least squares
    AlphaEdit  ΔW = (P (Kₚᵀ Kₚ + Kᵀ K) + L2 · I)⁻¹ P Kᵀ R  P: onto what keys of the corpus do not use

Each is the product of two thin factors, one column a fact: ΔW = left · right. All in float64.
"""

from dataclasses import dataclass

import torch
from einops import einsum
from jaxtyping import Float, Float64
from torch import Tensor

from ffnprobe.errors import DataRefused

# A second moment whose smallest eigenvalue is so small a part of the largest cannot be inverted.
SINGULAR = 1e-12
# A neuron whose mean square is so small a part of the largest is silent: it has no column in a factor.
SILENT = 1e-9
# One whose mean square is so small a part of the third quartile's, among those that open at all, has no
# part in a change: an inverse would lay the change on such neurons, as a matrix many times W_down's size.
NEARLY_SILENT = 1e-4

Moment = Float64[Tensor, "neuron neuron2"]
Keys = Float[Tensor, "fact neuron"]
Shifts = Float[Tensor, "fact d_model"]


@dataclass(frozen=True, eq=False)
class LowRank:
    """A change of one layer's W_down, kept as the product of two thin factors."""

    layer: int
    left: Float[Tensor, "neuron rank"]
    right: Float[Tensor, "rank d_model"]

    @property
    def whole(self) -> Float[Tensor, "neuron d_model"]:
        return einsum(
            self.left.double(), self.right.double(),
            "neuron rank, rank d_model -> neuron d_model",
        ).float()  # fmt: skip

    @property
    def nbytes(self) -> int:
        return self.left.nbytes + self.right.nbytes


def solve_rome(
    layer: int, moment: Moment, key: Float[Tensor, " neuron"], shift: Float[Tensor, " d_model"]
) -> LowRank:
    """Rank one: move the output at one key by a shift, and other keys of the corpus least."""
    k = key.double()
    direction = _solve(moment, k[:, None])
    return LowRank(layer, direction / (direction[:, 0] @ k), shift.double()[None])


def solve_memit(
    layer: int, moment: Moment, keys: Keys, shifts: Shifts, *, weight: float
) -> LowRank:
    """Least squares: move the outputs at many keys, the corpus weighing as so many tokens."""
    k = keys.double()
    return LowRank(layer, _solve(weight * moment + k.mT @ k, k.mT), shifts.double())


def solve_alphaedit(
    layer: int, free: Moment, keys: Keys, shifts: Shifts, *, earlier: Keys, ridge: float
) -> LowRank:
    """In the null space of the corpus: move the outputs at new keys and leave earlier edits' alone."""
    k, before = keys.double(), earlier.double()
    system = free @ (before.mT @ before + k.mT @ k) + ridge * torch.eye(len(free)).to(free)
    return LowRank(layer, torch.linalg.solve(system, free @ k.mT), shifts.double())


def find_free_space(moment: Moment, share: float) -> Moment:
    """Return the projection onto the directions whose eigenvalues hold at most a share of the total."""
    values, vectors = torch.linalg.eigh(moment)
    free = vectors[:, values.clamp(min=0).cumsum(0) <= share * values.clamp(min=0).sum()]
    projection: Tensor = free @ free.mT
    return projection


def factor_live(
    matrix: Moment, *, least: float | None = None
) -> tuple[Float64[Tensor, "live live2"], Tensor]:
    """Return the Cholesky factor (lower) over the neurons whose mean square exceeds `least`, and which."""
    sizes = matrix.diagonal()
    live = sizes > (SILENT * float(sizes.max()) if least is None else least)
    factor, failed = torch.linalg.cholesky_ex(matrix[live][:, live])
    pivots = factor.diagonal() ** 2
    if int(failed) or not len(pivots) or float(pivots.min()) <= SINGULAR * float(pivots.max()):
        raise DataRefused("the second moment of the keys is singular")
    return factor, live


def _solve(matrix: Moment, columns: Tensor) -> Tensor:
    """Solve with a second moment; zero for neurons that are silent or nearly so."""
    sizes = matrix.diagonal()
    opens = sizes[sizes > 0]
    least = NEARLY_SILENT * float(opens.quantile(0.75)) if len(opens) else 0.0
    factor, live = factor_live(matrix, least=least)
    solution = torch.zeros_like(columns)
    solution[live] = torch.cholesky_solve(columns[live], factor)
    return solution

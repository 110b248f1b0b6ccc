"""The classic small model in which superposition appears: more signals than dimensions.

    x̂ = relu(WᵀW x + b),  x_i uniform in 0…1 with probability p, else 0
    loss = Σ_i importance_i (x_i − x̂_i)²,  importance_i = 0.9^i

With every signal always on (p = 1) the model keeps the most important ones, one a dimension, and
drops the rest. The rarer the signals, the more of them share the dimensions: two that hardly ever
come together hardly ever disturb each other. (The literature calls a signal a feature.)

All sparsities are trained together, as one batch of models, in seconds.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pandas as pd
import torch
from einops import einsum, reduce
from jaxtyping import Float
from torch import Tensor

DENSITIES = (1.0, 0.3, 0.1, 0.03, 0.01)
# A signal is kept if its direction is at least half as long as a perfect one.
KEPT = 0.5


@dataclass(frozen=True)
class SparseModels:
    """One trained model for each density: `weights[model signal dimension]`."""

    densities: tuple[float, ...]
    weights: Float[Tensor, "model signal dimension"]
    biases: Float[Tensor, "model signal"]
    losses: Float[Tensor, " model"]

    @property
    def overlaps(self) -> Float[Tensor, "model signal other"]:
        """WᵀW: what each signal's reading takes from each signal."""
        return einsum(self.weights, self.weights, "m signal d, m other d -> m signal other")

    @property
    def lengths(self) -> Float[Tensor, "model signal"]:
        """How strongly each signal is kept."""
        lengths: Tensor = torch.linalg.vector_norm(self.weights, dim=-1)
        return lengths

    def table(self) -> pd.DataFrame:
        """Table each density: signals kept, dimensions a signal, interference, loss."""
        squared = self.overlaps.square()
        own = torch.diagonal(squared, dim1=1, dim2=2)
        disturbed = (squared.sum(-1) - own).sqrt()
        kept = self.lengths > KEPT
        dimensions = self.weights.shape[-1]
        return pd.DataFrame(
            {
                "density": self.densities,
                "signals": self.weights.shape[1],
                "dimensions": dimensions,
                "signals_kept": kept.sum(-1).tolist(),
                "dimensions_a_signal": (dimensions / self.lengths.square().sum(-1)).tolist(),
                "interference": ((disturbed * kept).sum(-1) / kept.sum(-1)).tolist(),
                "loss": self.losses.tolist(),
            }
        )


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread, then restore the number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@one_thread()
def train_sparse(
    *,
    signals: int = 20,
    dimensions: int = 5,
    densities: Sequence[float] = DENSITIES,
    steps: int = 2000,
    batch: int = 256,
    seed: int = 0,
) -> SparseModels:
    """Train one model a density; the same numbers for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    models = len(densities)
    weights = torch.randn(models, signals, dimensions, generator=generator) / dimensions**0.5
    biases = torch.zeros(models, signals)
    weights.requires_grad_()
    biases.requires_grad_()
    chance = torch.tensor(densities)[:, None, None]
    importance = 0.9 ** torch.arange(signals)
    optimiser = torch.optim.Adam([weights, biases], lr=3e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    loss = torch.zeros(models)
    for _ in range(steps):
        size = (models, batch, signals)
        is_on = torch.rand(size, generator=generator) < chance
        x = torch.rand(size, generator=generator) * is_on
        hidden = einsum(x, weights, "m batch signal, m signal d -> m batch d")
        read = einsum(hidden, weights, "m batch d, m signal d -> m batch signal")
        error = (x - torch.relu(read + biases[:, None])).square() * importance
        loss = reduce(error, "m batch signal -> m", "sum") / batch
        optimiser.zero_grad()
        # Rare signals give small losses; dividing by the density lets all models learn alike.
        torch.autograd.backward((loss / chance[:, 0, 0]).sum())
        optimiser.step()
        schedule.step()
    return SparseModels(tuple(densities), weights.detach(), biases.detach(), loss.detach())

"""Superposition: how many directions share how few dimensions, and how much they interfere.

A layer has more neurons than the residual stream has dimensions, so their answers cannot all be at
right angles. For N directions w_n (and for random ones of the same number and lengths):

    cosines              cos(w_n, w_m), each pair once
    effective dimension  (Σ λ)² / Σ λ², λ the eigenvalues of WᵀW: in how many dimensions they spread
    interference of n    √(Σ_{m≠n} (w_m · w_n)²) / |w_n|²: the noise on reading n along its own
                         direction when every other neuron is active by 1 with a random sign, in
                         units of n's own part

>>> import torch
>>> crossed = measure_crowding(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
>>> crossed.effective_dimension, crossed.interference.tolist()
(1.47..., [0.0, 0.0])

`train_sparse` trains the classic small model in which superposition appears:

    x̂ = relu(WᵀW x + b),  x_i uniform in 0…1 with probability p, else 0
    loss = Σ_i importance_i (x_i − x̂_i)²,  importance_i = 0.9^i

With every signal always on (p = 1) it keeps the most important ones, one a dimension, and drops the
rest. The rarer the signals, the more of them share the dimensions: two that hardly ever come together
hardly ever disturb each other. (The literature calls a signal a feature.)
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd
import torch
from einops import einsum, reduce
from jaxtyping import Float, Int
from torch import Tensor

from ffnprobe.models.model import Model
from ffnprobe.reading.projection import sort_neurons
from ffnprobe.tracing.attribution import attribute
from ffnprobe.tracing.runs import run

if TYPE_CHECKING:
    from ffnprobe.models.pocket import Prompt

# A cosine this large is beyond chance in any space of a hundred dimensions or more.
NEAR = 0.5
TEXTS_AT_ONCE = 128
DENSITIES = (1.0, 0.3, 0.1, 0.03, 0.01)
# A signal is kept if its direction is at least half as long as a perfect one.
KEPT = 0.5


@dataclass(frozen=True)
class Crowding:
    """How directions share their space."""

    cosines: Float[Tensor, " pair"]
    effective_dimension: float
    interference: Float[Tensor, " direction"]

    def row(self) -> dict[str, float]:
        """Put the measures in one row."""
        return {
            "effective_dimension": self.effective_dimension,
            "mean_size_of_cosine": self.cosines.abs().mean().item(),
            "largest_cosine": self.cosines.max().item(),
            "share_near": (self.cosines.abs() > NEAR).double().mean().item(),
            "interference": self.interference.median().item(),
        }


def measure_crowding(directions: Float[Tensor, "direction d_model"]) -> Crowding:
    """Measure how directions share their space."""
    exact = directions.double().cpu()
    dots = einsum(exact, exact, "direction d_model, other d_model -> direction other")
    squares = torch.diagonal(dots)
    first, second = torch.triu_indices(len(exact), len(exact), offset=1)
    lengths = squares.sqrt()
    # The eigenvalues of WᵀW and of WWᵀ are the same but for zeros: traces are enough.
    effective = squares.sum().square() / dots.square().sum()
    others = (dots.square().sum(-1) - squares.square()).clamp(min=0)
    return Crowding(
        cosines=dots[first, second] / (lengths[first] * lengths[second]),
        effective_dimension=effective.item(),
        interference=others.sqrt() / squares,
    )


def draw_like(
    directions: Float[Tensor, "direction d_model"], *, seed: int = 0
) -> Float[Tensor, "direction d_model"]:
    """Draw random directions, as many and as long as those given."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(directions.shape, generator=generator, dtype=torch.float64)
    lengths: Tensor = torch.linalg.vector_norm(directions.double().cpu(), dim=-1, keepdim=True)
    return lengths * torch.nn.functional.normalize(drawn, dim=-1)


def measure_layer(model: Model, layer: int) -> dict[str, Crowding]:
    """Measure a layer's questions and answers, and random directions as long as the answers."""
    return {
        "questions": measure_crowding(model.questions[layer]),
        "answers": measure_crowding(model.answers[layer]),
        "random": measure_crowding(draw_like(model.answers[layer], seed=layer)),
    }


def table_crowding(model: Model) -> pd.DataFrame:
    """Table every layer's questions, answers and random directions."""
    c = model.config
    return pd.DataFrame(
        [
            {
                "layer": layer,
                "directions": c.d_mlp,
                "dimensions": c.d_model,
                "of": name,
                **one.row(),
            }
            for layer in range(c.layers)
            for name, one in measure_layer(model, layer).items()
        ]
    )


@dataclass(frozen=True)
class FactLoad:
    """In how many known facts each neuron takes part, as one of the k that push hardest."""

    k: int
    known: int
    asked: int
    counts: Int[Tensor, "layer neuron"]

    def table(self) -> pd.DataFrame:
        """Table each layer: neurons that take part in a fact, in several, and the busiest."""
        rows = []
        for layer, counts in enumerate(self.counts):
            busiest = int(counts.argmax())
            rows.append({"layer": layer, "neurons": len(counts), "in_a_fact": int((counts > 0).sum()),
                         "in_ten_or_more": int((counts >= 10).sum()),
                         "appearances": int(counts.sum()), "busiest": f"L{layer}N{busiest}",
                         "its_facts": int(counts[busiest])})  # fmt: skip
        return pd.DataFrame(rows)


def count_facts(model: Model, prompts: Sequence["Prompt"], *, top: int = 10) -> FactLoad:
    """Count, over the prompts whose answer is the model's first choice, each neuron's appearances."""
    counts = torch.zeros(model.config.layers, model.config.d_mlp, dtype=torch.long)
    known = 0
    for start in range(0, len(prompts), TEXTS_AT_ONCE):
        chosen = prompts[start : start + TEXTS_AT_ONCE]
        traces = run(model, [prompt.text for prompt in chosen], patterns=False)
        for prompt, trace in zip(chosen, traces, strict=True):
            if trace.predictions(1)["id"].item() != model.vocab.one(prompt.fact.answer):
                continue
            known += 1
            (pushes,) = attribute(trace, prompt.fact.answer).pieces
            for neuron in sort_neurons(pushes.values, top):
                counts[neuron.layer, neuron.neuron] += 1
    return FactLoad(top, known, len(prompts), counts)


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
    """Train one model a density, all as one batch; the same numbers for the same seed."""
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

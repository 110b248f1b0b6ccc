"""Find for every neuron of one model the neuron of another whose answer does most the same to tokens.

    correlation   over the vocabulary, of w_n · u_t and w'_m · u'_t
    control       the largest correlation of the same neuron with as many random answers: each a random
                  mixture of the other model's answers of one layer, so that they span what those span

The sign of a gated neuron's answer is free (its question can be negated with it), so where neurons have
gates the size of a correlation decides. Pairs are compared a block of neurons at a time and used up at once:
of GPT-2 small with itself there are 1.4 billion, never held together.

Two models have different residual streams, so their directions cannot be compared by themselves. What a
direction w does to the tokens of one vocabulary can: the vector of w · u_t over t, less its mean. Its
correlation with that of a direction of another model does not change if either stream is rotated.

With U the tokens centred over the vocabulary and U = Q diag(σ) Vᵀ, the vector is Q a with
a = diag(σ) Vᵀ w. So the correlation of w and w' is, exactly,

    aᵀ (QᵀQ') a' / (|a| |a'|)

σ, V and QᵀQ' follow from UᵀU, U'ᵀU' and UᵀU', of d_model rows and columns. They are added up in fp64, a
few thousand tokens at a time; nothing of the size neurons × tokens is ever made.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from einops import einsum, rearrange, reduce
from jaxtyping import Float, Int
from torch import Tensor, linalg

from ffnprobe.arguments import Progress
from ffnprobe.models.model import Model

TOKENS_AT_ONCE, ROWS_AT_ONCE = 4096, 256
# A direction in which tokens spread less than this, of their widest spread, is rounding.
UNREAD = 1e-6


@dataclass(frozen=True, eq=False)
class TokenCoordinates:
    """How far tokens spread along each direction of one model's stream: diag(σ) Vᵀ, transposed."""

    spread: Float[Tensor, "d_model direction"]  # V diag(σ)
    widest: float

    def project(self, rows: Float[Tensor, "row d_model"]) -> Float[Tensor, "row direction"]:
        """Return each direction's coordinates, of length 1; zero where it tells no tokens apart."""
        coordinates = rows @ self.spread
        lengths = linalg.vector_norm(coordinates, dim=-1, keepdim=True)
        least = UNREAD * self.widest * linalg.vector_norm(rows, dim=-1, keepdim=True)
        return torch.where(lengths > least, coordinates / lengths, 0.0)


@dataclass(frozen=True, eq=False)
class VocabularyAlignment:
    """The token coordinates of two models, and the matrix QᵀQ' between them."""

    one: TokenCoordinates
    other: TokenCoordinates
    between: Float[Tensor, "direction other_direction"]

    def correlate(
        self, rows: Float[Tensor, "row d_model"], others: Float[Tensor, "row other_d_model"]
    ) -> Float[Tensor, " row"]:
        """Return the correlation over tokens of each direction with its counterpart."""
        here, there = self.one.project(rows) @ self.between, self.other.project(others)
        return einsum(here, there, "row there, row there -> row").clamp(-1, 1)


def align_vocabularies(one: Model, other: Model, *, by: str) -> VocabularyAlignment:
    """Align two models of one vocabulary by what answers write to (unembedding) or questions read."""
    size, wide = one.config.d_model, other.config.d_model
    total = torch.zeros(size + wide, size + wide, dtype=torch.float64, device=one.device)
    pairs = zip(_blocks(one, by=by), _blocks(other, by=by), strict=True)
    for rows, others in pairs:
        both = torch.cat([rows, others.to(rows.device)], dim=-1)
        total += einsum(both, both, "vocab here, vocab there -> here there")
    total /= one.config.vocab
    inverse, coordinates = _decompose(total[:size, :size])
    inverse_there, coordinates_there = _decompose(total[size:, size:])
    between = einsum(
        inverse, total[:size, size:], inverse_there,
        "here direction, here there, there other -> direction other",
    )  # fmt: skip
    return VocabularyAlignment(coordinates, coordinates_there, between.float())


def _blocks(model: Model, *, by: str) -> Iterator[Float[Tensor, "vocab d_model"]]:
    """Yield the tokens' directions less their mean, some at a time, in fp64."""
    starts = range(0, model.config.vocab, TOKENS_AT_ONCE)
    parts = [slice(start, start + TOKENS_AT_ONCE) for start in starts]

    def read(part: slice) -> Float[Tensor, "vocab d_model"]:
        if by == "answer":
            return model.centre(model.head[part].double() * model.final_gain.double())
        return model.embedding[part].double()

    sums = [reduce(read(part), "vocab d_model -> d_model", "sum") for part in parts]
    mean = torch.stack(sums).sum(dim=0) / model.config.vocab
    for part in parts:
        yield read(part) - mean


def _decompose(
    covariance: Float[Tensor, "d_model d_model"],
) -> tuple[Float[Tensor, "d_model direction"], TokenCoordinates]:
    """Return V diag(1/σ), zero where no token is read, and the coordinates."""
    values, directions = linalg.eigh(covariance)
    deviations = values.clamp(min=0).sqrt()
    widest = float(deviations.max())
    kept = torch.where(deviations > UNREAD * widest, deviations, 0.0)
    inverse = torch.where(kept > 0, 1 / kept, 0.0)
    return directions * inverse, TokenCoordinates((directions * kept).float(), widest)


@dataclass(frozen=True, eq=False)
class Twins:
    """Each neuron's best counterpart, counted through all layers, and what chance alone reaches."""

    numbers: Int[Tensor, " neuron"]
    correlations: Float[Tensor, " neuron"]
    controls: Float[Tensor, " neuron"]
    is_mutual: Tensor  # whether this neuron is also its counterpart's best


@torch.no_grad()
def find_twins(model: Model, other: Model, *, seed: int, progress: Progress | None = None) -> Twins:
    """Compare all answers of two models; `progress` is called with how many neurons are done."""
    alignment = align_vocabularies(model, other, by="answer")
    is_signed = not (model.config.is_gated or other.config.is_gated)
    generator = torch.Generator().manual_seed(seed)
    answers = [other.answers_of(layer).to(model.device) for layer in range(other.config.layers)]
    theirs = torch.cat([alignment.other.project(rows) for rows in answers])
    # Of each layer as many random mixtures as it has answers.
    draw = partial(torch.randn, generator=generator)
    mixtures = (draw(len(rows), len(rows)).to(rows) @ rows for rows in answers)
    mixed = torch.cat([alignment.other.project(rows) for rows in mixtures])
    count = model.config.neurons
    numbers = torch.empty(count, dtype=torch.int64)
    correlations, controls = torch.empty(count), torch.empty(count)
    # For each of the other's neurons the best of this model's, so far.
    largest = torch.full((other.config.neurons,), -math.inf)
    backward = torch.zeros(other.config.neurons, dtype=torch.int64)
    for rows, mine in _place(model, alignment):
        values = mine @ rearrange(theirs, "other direction -> direction other")
        sizes = (values if is_signed else values.abs()).cpu()
        # NumPy takes the first of equals, torch any.
        numbers[rows] = torch.from_numpy(sizes.numpy().argmax(axis=1))
        correlations[rows] = torch.take_along_dim(values.cpu(), numbers[rows][:, None], dim=1)[:, 0]
        best = torch.from_numpy(sizes.numpy().argmax(axis=0))
        reached = torch.take_along_dim(sizes, best[None], dim=0)[0]
        is_better = reached > largest
        backward = torch.where(is_better, rows.start + best, backward)
        largest = torch.where(is_better, reached, largest)
        chance = mine @ rearrange(mixed, "other direction -> direction other")
        controls[rows] = (chance if is_signed else chance.abs()).amax(dim=1).cpu()
        if progress is not None:
            progress(rows.stop, count)
    is_mutual = backward[numbers] == torch.arange(count)
    return Twins(numbers, correlations.clamp(-1, 1), controls.clamp(-1, 1), is_mutual)


def _place(
    model: Model, alignment: VocabularyAlignment
) -> Iterator[tuple[slice, Float[Tensor, "row other_direction"]]]:
    """Yield the model's answers in the other's coordinates, a block of neurons at a time."""
    for layer in range(model.config.layers):
        answers, first = model.answers_of(layer), layer * model.config.d_mlp
        for start in range(0, len(answers), ROWS_AT_ONCE):
            block = answers[start : start + ROWS_AT_ONCE]
            rows = slice(first + start, first + start + len(block))
            yield rows, alignment.one.project(block) @ alignment.between

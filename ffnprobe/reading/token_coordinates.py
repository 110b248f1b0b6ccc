"""Directions of two models in one space: what each does to every token of their vocabulary.

Two models have different residual streams, so their directions cannot be compared by themselves. What a
direction w does to the tokens of one vocabulary can: the vector of w · u_t over t, less its mean. Its
correlation with that of a direction of another model does not change if either stream is rotated.

With U the tokens centred over the vocabulary and U = Q diag(σ) Vᵀ, the vector is Q a with
a = diag(σ) Vᵀ w. So the correlation of w and w' is, exactly,

    aᵀ (QᵀQ') a' / (|a| |a'|)

σ, V and QᵀQ' follow from UᵀU, U'ᵀU' and UᵀU', of d_model rows and columns. They are added up in fp64, a
few thousand tokens at a time; nothing of the size neurons × tokens is ever made.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from einops import einsum, reduce
from jaxtyping import Float
from torch import Tensor, linalg

from ffnprobe.models.model import Model

TOKENS_AT_ONCE = 4096
# A direction in which tokens spread less than this, of their widest spread, is rounding.
UNREAD = 1e-6


@dataclass(frozen=True, eq=False)
class TokenCoordinates:
    """How far tokens spread along each direction of one model's stream: diag(σ) Vᵀ, transposed."""

    spread: Float[Tensor, "d_model direction"]  # V diag(σ)
    widest: float

    def project(self, rows: Float[Tensor, "row d_model"]) -> Float[Tensor, "row direction"]:
        """Return each direction's coordinates, of length 1; zero where it tells no tokens apart."""
        found = rows @ self.spread
        lengths = linalg.vector_norm(found, dim=-1, keepdim=True)
        least = UNREAD * self.widest * linalg.vector_norm(rows, dim=-1, keepdim=True)
        return torch.where(lengths > least, found / lengths, 0.0)


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
        found = self.one.project(rows) @ self.between
        return einsum(found, self.other.project(others), "row there, row there -> row").clamp(-1, 1)


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
    sums = [reduce(_rows(model, part, by=by), "vocab d_model -> d_model", "sum") for part in parts]
    mean = torch.stack(sums).sum(dim=0) / model.config.vocab
    for part in parts:
        yield _rows(model, part, by=by) - mean


def _rows(model: Model, tokens: slice, *, by: str) -> Float[Tensor, "vocab d_model"]:
    if by == "answer":
        return model.centre(model.head[tokens].double() * model.final_gain.double())
    return model.embedding[tokens].double()


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

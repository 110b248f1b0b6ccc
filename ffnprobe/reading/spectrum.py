"""The directions tokens differ in: principal directions over the vocabulary, weakest first.

With C the covariance over tokens of their directions (u_t, or the embeddings), C = V diag(σ²) Vᵀ:

    spread of a direction w       std over tokens of w · u_t = |diag(σ) Vᵀ w|, no survey needed
    null-space share of answer w  |V₀ᵀ (w − mean w)| / |w − mean w|, V₀ the weakest 1/64 of V

V₀ are the bottom singular directions of the unembedding centred over d_model and the vocabulary
(12 of GPT-2 small's 768, at least 2; one is the constant direction, which no LayerNorm lets
through and no centred answer has). What is written there barely moves one logit against another;
it works through the final scale. A random direction has a share of 1/8.

Sums run in fp32 over some thousand tokens at a time and in fp64 over these.
"""

from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
import torch
from einops import rearrange, reduce
from jaxtyping import Float
from torch import Tensor, linalg

from ffnprobe.models.model import Model

TOKENS_AT_ONCE = 8192
TOKENS_IN_CACHE = 512
NULL_PART = 64


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The mean of token directions, and how far tokens spread from it along each direction."""

    mean: Float[Tensor, " d_model"]
    directions: Float[Tensor, "d_model direction"]
    deviations: Float[Tensor, " direction"]
    is_centred: bool  # over d_model: the norm before them lets no mean through

    def spreads(self, rows: Float[Tensor, "row d_model"]) -> Float[Tensor, " row"]:
        """Return the standard deviation over tokens of each row's dot product with them."""
        spreads: Tensor = linalg.vector_norm(rows @ (self.directions * self.deviations), dim=-1)
        return spreads

    def null_shares(self, answers: Float[Tensor, "row d_model"]) -> Float[Tensor, " row"]:
        """Return the share of each answer's norm that lies in the weakest directions."""
        weakest = self.directions[:, : max(2, len(self.mean) // NULL_PART)]
        if self.is_centred:
            answers = answers - reduce(answers, "row d_model -> row 1", "mean")
        inside, whole = (linalg.vector_norm(part, dim=-1) for part in (answers @ weakest, answers))
        shares: Tensor = inside / whole
        return shares


class TokenDirections:
    """What a model's tokens look like from the residual stream, each part made when first asked for."""

    def __init__(self, model: Model) -> None:
        # Not the model itself: this is kept for as long as the model is, and no longer.
        self._embedding, self._head, self._gain = model.embedding, model.head, model.final_gain
        self._is_centred = not model.config.is_rms

    @cached_property
    def embedding(self) -> Spectrum:
        """The spectrum of the token embeddings, which questions are read through."""
        return _decompose(*_covariance(self._embedding), like=self._embedding, is_centred=False)

    @cached_property
    def unembedding(self) -> Spectrum:
        """The spectrum of the folded unembedding u_t, which answers are read through."""
        mean, covariance = _covariance(self._head)
        gain = self._gain.double().cpu().numpy()
        covariance = gain[:, None] * covariance * gain
        scaled = gain * mean
        if self._is_centred:
            covariance -= reduce(covariance, "row column -> 1 column", "mean")
            covariance -= reduce(covariance, "row column -> row 1", "mean")
            scaled -= scaled.mean()
        return _decompose(scaled, covariance, like=self._head, is_centred=self._is_centred)

    @cached_property
    def unembedding_norms(self) -> Float[Tensor, " vocab"]:
        """The length of each u_t, from |x − mean x|² = |x|² − d_model · (mean x)²."""
        squares = []
        for rows in torch.split(self._head, TOKENS_IN_CACHE):
            scaled = rows * self._gain
            means = reduce(scaled, "vocab d_model -> vocab", "mean")
            lengths = linalg.vector_norm(scaled, dim=-1)
            taken = len(self._gain) * means.square() if self._is_centred else 0.0
            squares.append(lengths.square() - taken)
        return torch.cat(squares).clamp(min=0).sqrt()

    @cached_property
    def mean_unit_row(self) -> Float[Tensor, " d_model"]:
        """The mean over tokens of W_U[:, t] / |u_t|: a reader's product with it is its mean cosine."""
        lengths = torch.where(self.unembedding_norms > 0, self.unembedding_norms, torch.inf)
        return (1 / lengths) @ self._head / len(lengths)


_known: "WeakKeyDictionary[Model, TokenDirections]" = WeakKeyDictionary()


def token_directions(model: Model) -> TokenDirections:
    """Return the model's token directions, measured once for each model."""
    if model not in _known:
        _known[model] = TokenDirections(model)
    return _known[model]


def _covariance(
    rows: Float[Tensor, "vocab d_model"],
) -> tuple[Float[np.ndarray, " d_model"], Float[np.ndarray, "d_model d_model"]]:
    """Return the mean of the rows and their covariance, in fp64."""
    mean = reduce(rows, "vocab d_model -> d_model", "mean").double().cpu().numpy()
    total = np.zeros((len(mean), len(mean)))
    for part in torch.split(rows, TOKENS_AT_ONCE):
        some = part.cpu().numpy()
        # NumPy knows that a matrix times itself is symmetric and does half the work torch does.
        total += rearrange(some, "vocab d_model -> d_model vocab") @ some
    return mean, total / len(rows) - np.outer(mean, mean)


def _decompose(
    mean: Float[np.ndarray, " d_model"],
    covariance: Float[np.ndarray, "d_model d_model"],
    *,
    like: Tensor,
    is_centred: bool,
) -> Spectrum:
    """Find the principal directions, as fp32 tensors on the device of another."""
    values, directions = np.linalg.eigh(covariance)
    parts = (mean, directions, np.sqrt(values.clip(min=0)))
    centre, along, deviations = (torch.from_numpy(part).to(like) for part in parts)
    return Spectrum(centre, along, deviations, is_centred)

"""The directions tokens differ in, weakest first, and how unusual a token is for a neuron.

With C the covariance over tokens of their directions (u_t, or the embeddings), C = V diag(σ²) Vᵀ:

    spread of a direction w       std over tokens of w · u_t = |diag(σ) Vᵀ w|, no survey needed
    null-space share of answer w  |V₀ᵀ (w − mean w)| / |w − mean w|, V₀ the weakest part of V

V₀ are the bottom singular directions of the unembedding centred over d_model and the vocabulary: 1/64
of them (12 of GPT-2 small's 768, at least 2; one is the constant direction, which no LayerNorm lets
through and no centred answer has), or all that no token reads where these are more, as where the
vocabulary is smaller than d_model. What is written there barely moves one logit against another; it
works through the final scale. A random direction has a share of sqrt(|V₀| / d_model): 1/8 as a rule.

The mean is taken away before anything is squared, so that a large vector common to all tokens costs
no digits. Sums run in fp64; over a large vocabulary in fp32 over some thousand tokens at a time.

A token t is unusual for a neuron by z = (w · u_t − mean over tokens) / spread of w; for questions and
gates by the same with the token embeddings.
"""

from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
import torch
from einops import einsum, rearrange, reduce
from jaxtyping import Float
from torch import Tensor, linalg

from ffnprobe.arguments import RANKS
from ffnprobe.models.model import Model
from ffnprobe.reading.projection import pick_rows

TOKENS_AT_ONCE = 8192
TOKENS_IN_CACHE = 512
NULL_PART = 64
# So many products are done in fp64, which takes twice as long.
EXACT_BELOW = 2**34
# A direction in which tokens spread less than this, of their widest spread, is read by none of them.
UNREAD_IN_FP64, UNREAD_IN_FP32 = 1e-6, 3e-4
# A spread this small, as a share of the greatest possible, is rounding: all tokens are alike.
NO_SPREAD = 1e-6


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The mean of token directions, and how far tokens spread from it along each direction."""

    mean: Float[Tensor, " d_model"]  # in fp64, on the CPU
    directions: Float[Tensor, "d_model direction"]
    deviations: Float[Tensor, " direction"]
    is_centred: bool  # over d_model: the norm before them lets no mean through
    weakest: int  # how many directions are the null space, the first ones

    def spreads(self, rows: Float[Tensor, "row d_model"]) -> Float[Tensor, " row"]:
        """Return the standard deviation over tokens of each row's dot product with them."""
        spreads: Tensor = linalg.vector_norm(rows @ (self.directions * self.deviations), dim=-1)
        return spreads

    def null_shares(self, answers: Float[Tensor, "row d_model"]) -> Float[Tensor, " row"]:
        """Return the share of each answer's norm that lies in the weakest directions."""
        weakest = self.directions[:, : self.weakest]
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
        # By what is compared and the layer: the norms and spreads of its neurons.
        self.lengths: dict[tuple[str, int], tuple[Tensor, Tensor]] = {}

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
    # Any vector near the mean will do: what is left of the mean is taken away in the end.
    near = reduce(rows, "vocab d_model -> d_model", "mean")
    total, left = np.zeros((len(near), len(near))), np.zeros(len(near))
    precision = torch.float64 if _is_exact(rows) else torch.float32
    for part in torch.split(rows, TOKENS_AT_ONCE):
        some = (part - near).cpu().to(precision).numpy()
        # NumPy knows that a matrix times itself is symmetric and does half the work torch does.
        total += rearrange(some, "vocab d_model -> d_model vocab") @ some
        left += some.sum(axis=0, dtype=np.float64)
    left /= len(rows)
    return near.cpu().double().numpy() + left, total / len(rows) - np.outer(left, left)


def _is_exact(rows: Float[Tensor, "vocab d_model"]) -> bool:
    return rows.numel() * rows.shape[-1] <= EXACT_BELOW


def _decompose(
    mean: Float[np.ndarray, " d_model"],
    covariance: Float[np.ndarray, "d_model d_model"],
    *,
    like: Tensor,
    is_centred: bool,
) -> Spectrum:
    """Find the principal directions, as fp32 tensors on the device of another."""
    values, directions = np.linalg.eigh(covariance)
    deviations = np.sqrt(values.clip(min=0))
    bound = UNREAD_IN_FP64 if _is_exact(like) else UNREAD_IN_FP32
    unread = int((deviations <= bound * deviations.max()).sum())
    return Spectrum(
        mean=torch.from_numpy(mean),
        directions=torch.from_numpy(directions).to(like),
        deviations=torch.from_numpy(deviations).to(like),
        is_centred=is_centred,
        weakest=max(2, len(mean) // NULL_PART, unread),
    )


def compare_tokens(
    model: Model, ids: list[int], *, by: str, layers: list[int]
) -> dict[str, Float[Tensor, "token layer neuron"]]:
    """Compare every neuron of the layers with each token: z, dot and cosine."""
    known, columns = token_directions(model).lengths, []
    for layer in layers:
        rows = model.carry(layer, pick_rows(model, layer, by=by), by=by)
        if (by, layer) not in known:  # they are the same for every search
            known[by, layer] = _measure_lengths(model, rows, by=by)
        columns.append(compare_rows(model, ids, rows, by=by, lengths=known[by, layer]))
    return {name: torch.stack([each[name] for each in columns], dim=1) for name in RANKS}


def compare_rows(
    model: Model,
    ids: list[int],
    rows: Float[Tensor, "neuron d_model"],
    *,
    by: str,
    lengths: tuple[Tensor, Tensor] | None = None,
) -> dict[str, Float[Tensor, "token neuron"]]:
    """Compare answers, questions or gates with each token: z, dot and cosine."""
    directions = token_directions(model)
    if by == "answer":
        spectrum = directions.unembedding
        exact = model.centre(model.head[ids].cpu().double() * model.final_gain.cpu().double())
    else:
        spectrum, exact = directions.embedding, model.embedding[ids].cpu().double()
    # What tokens have in common is taken away in fp64: it may be far larger than what they do not.
    targets, apart = (part.to(model.head) for part in (exact, exact - spectrum.mean))
    norms, spreads = lengths or _measure_lengths(model, rows, by=by)
    dots = einsum(targets, rows, "token d_model, neuron d_model -> token neuron")
    away = einsum(apart, rows, "token d_model, neuron d_model -> token neuron")
    products = linalg.vector_norm(targets, dim=-1)[:, None] * norms
    return {
        "z": torch.where(spreads > 0, away / spreads, 0.0),
        "cosine": torch.where(products > 0, dots / products, 0.0),
        "dot": away if by == "answer" else dots,
    }


def _measure_lengths(
    model: Model, rows: Float[Tensor, "neuron d_model"], *, by: str
) -> tuple[Float[Tensor, " neuron"], Float[Tensor, " neuron"]]:
    """Return each row's norm, and how far tokens spread along it, 0 where that is rounding."""
    directions = token_directions(model)
    spectrum = directions.unembedding if by == "answer" else directions.embedding
    norms, spreads = linalg.vector_norm(rows, dim=-1), spectrum.spreads(rows)
    is_spread = spreads > NO_SPREAD * norms * spectrum.deviations.max()
    return norms, torch.where(is_spread, spreads, 0.0)

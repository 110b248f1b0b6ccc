"""The shape of an answer over the vocabulary: moments over tokens of cos(w_n, u_t).

    mean       μ = mean cos             skew      mean (cos − μ)³ / variance^1.5
    variance   mean (cos − μ)²          kurtosis  mean (cos − μ)⁴ / variance²

Population moments, as scipy's `moment`, `skew` and `kurtosis(fisher=False)`: a normal distribution
has kurtosis 3. A token or an answer without length counts as cosine 0; where all cosines are equal
skew and kurtosis are not defined (not a number).
"""

from dataclasses import dataclass

import torch
from einops import reduce
from jaxtyping import Float
from torch import Tensor, linalg

# Rows stay in a core's cache over the passes below: 8 × 50,257 floats are 1.6 MB.
ROWS_IN_CACHE = 8


@dataclass(frozen=True)
class Moments:
    """Mean, variance, skew and kurtosis of an answer's cosines with all tokens."""

    mean: float
    variance: float
    skew: float
    kurtosis: float


def measure_moments(
    dots: Float[Tensor, "row vocab"],
    means: Float[Tensor, " row"],
    token_norms: Float[Tensor, " vocab"],
) -> list[Moments]:
    """Measure moments from each row's products with the tokens and its mean cosine.

    Rows are of answers of length 1, so that a product over the token's norm is the cosine.
    """
    per_token = 1 / torch.where(token_norms > 0, token_norms, torch.inf)
    found: list[Moments] = []
    for start in range(0, len(dots), ROWS_IN_CACHE):
        rows = slice(start, start + ROWS_IN_CACHE)
        away = torch.addcmul(-means[rows, None], dots[rows], per_token)
        found += _moments(means[rows], away)
    return found


def _moments(means: Float[Tensor, " row"], away: Float[Tensor, "row vocab"]) -> list[Moments]:
    """Measure rows of cosines whose mean has been taken away."""
    count = away.shape[-1]
    squares = away.square()
    # Not einsum: on CPU it multiplies rows by rows ten times slower than these do.
    variance = reduce(squares, "row vocab -> row", "mean").double()
    third = linalg.vecdot(squares, away).double() / count
    fourth = linalg.vector_norm(squares, dim=-1).double().square() / count
    columns = (means, variance, third / variance**1.5, fourth / variance.square())
    return [Moments(*row) for row in zip(*(c.tolist() for c in columns), strict=True)]

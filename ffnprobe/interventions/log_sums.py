"""The log of the sum over the vocabulary for many states near one, without all their logits.

Under the softmax p of a state x let ū = Σ p_t u_t, C = Σ p_t (u_t − ū)(u_t − ū)ᵀ, h = max ‖u_t − ū‖ · ‖δ‖.
Then, with V = δᵀ C δ,

    log Σ exp(logits at x + δ) = log Σ exp(logits at x) + ū·δ + V / 2 + R
    |R| ≤ (h + V eʰ) V eʰ / 6

The left side along δ is a cumulant generating function: R is its third derivative somewhere on the way, a
third central moment. There no deviation exceeds h + V eʰ and no variance V eʰ, since X = (u_t − ū)·δ has
|X| ≤ h and E exp(sX) ≥ 1.

To read ū and C costs as much as d_model states do by their logits; each state after that costs next to
nothing. Most neurons of a model move the final state so little that R is below the rounding of fp32. What
is not proven to be is read by its logits.
"""

from dataclasses import dataclass

import torch
from einops import einsum, reduce
from jaxtyping import Float
from torch import Tensor

TOKENS_AT_ONCE = 8192


@dataclass(frozen=True, eq=False)
class Surroundings:
    """What the unembedding is like under one prediction: its mean, its covariance, its farthest row."""

    mean: Float[Tensor, " d_model"]
    covariance: Float[Tensor, "d_model d_model"]
    farthest: float

    @classmethod
    def of(
        cls, unembedding: Float[Tensor, "vocab d_model"], logits: Float[Tensor, " vocab"]
    ) -> "Surroundings":
        """Read them a few tokens at a time."""
        weights = torch.softmax(logits.double(), dim=-1)
        parts = list(
            zip(
                torch.split(unembedding, TOKENS_AT_ONCE),
                torch.split(weights, TOKENS_AT_ONCE),
                strict=True,
            )
        )
        mean = torch.zeros_like(unembedding[0], dtype=torch.double)
        for rows, each in parts:
            mean += each @ rows.double()
        covariance = torch.zeros_like(mean).diag()
        farthest = 0.0
        for rows, each in parts:
            away = rows - mean.to(rows)
            farthest = max(farthest, float(torch.linalg.vector_norm(away, dim=-1).max()))
            away *= each.sqrt().to(away)[:, None]
            covariance += away.T @ away
        return cls(mean, covariance.to(unembedding), farthest)

    def follow(
        self, moves: Float[Tensor, "variant d_model"]
    ) -> tuple[Float[Tensor, " variant"], Float[Tensor, " variant"]]:
        """Return how far each move changes the log of the sum, and what that is off by at most."""
        turned = einsum(moves, self.covariance, "variant d_model, d_model other -> variant other")
        variance = reduce(turned.double() * moves, "variant d_model -> variant", "sum")
        reach = self.farthest * torch.linalg.vector_norm(moves, dim=-1).double()
        grown = variance * reach.exp()
        return moves.double() @ self.mean + variance / 2, (reach + grown) * grown / 6

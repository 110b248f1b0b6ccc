"""The log of the sum over the vocabulary for many states near one, without all their logits.

At a state x with softmax p the sum changes, when the state moves by δ, by the factor

    Σ_heavy p_t exp(u_t·δ)  +  ε · E exp(u_t·δ)        ε and E: the mass and the mean of all other tokens

The few heaviest tokens are taken exactly. For the others let ū be their mean row under p, C their
covariance, V = δᵀ C δ and h = max ‖u_t − ū‖ · ‖δ‖. Then

    log E exp(u_t·δ) = ū·δ + V / 2 + R,    |R| ≤ (h + V eʰ) V eʰ / 6

R is a third derivative of this cumulant generating function somewhere along δ, a third central moment. There
no deviation exceeds h + V eʰ and no variance V eʰ, since X = (u_t − ū)·δ has |X| ≤ h and E exp(sX) ≥ 1. Of R
the log of the sum has the share that the other tokens have in the sum.

To read ū and C costs as much as d_model states do by their logits; each state after that costs next to
nothing. Most neurons of a model move the final state so little that the error is below the rounding of fp32.
What is not proven to be is read by its logits.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from einops import einsum, reduce
from jaxtyping import Float
from torch import Tensor

HEAVIEST = 512
TOKENS_AT_ONCE = 8192


@dataclass(frozen=True, eq=False)
class Surroundings:
    """What the unembedding is like under one prediction: the heaviest tokens, and the others as a whole."""

    heavy: Float[Tensor, "token d_model"]
    weights: Float[Tensor, " token"]
    rest: float
    mean: Float[Tensor, " d_model"]
    covariance: Float[Tensor, "d_model d_model"]
    farthest: float

    @classmethod
    def of(
        cls, unembedding: Float[Tensor, "vocab d_model"], logits: Float[Tensor, " vocab"]
    ) -> "Surroundings":
        """Read them a few tokens at a time."""
        weights = torch.softmax(logits.double(), dim=-1)
        order = weights.argsort(descending=True, stable=True)
        heavy, others = order[:HEAVIEST], order[HEAVIEST:]
        rest = float(weights[others].sum())

        def each_part() -> Iterator[tuple[Tensor, Tensor]]:
            for ids in torch.split(others, TOKENS_AT_ONCE):
                yield unembedding[ids], weights[ids] / rest

        mean = torch.zeros_like(unembedding[0], dtype=torch.double)
        for rows, shares in each_part():
            mean += shares @ rows.double()
        covariance, farthest = torch.zeros_like(mean).diag(), 0.0
        for rows, shares in each_part():
            away = rows - mean.to(rows)
            farthest = max([farthest, *torch.linalg.vector_norm(away, dim=-1).tolist()])
            away *= shares.sqrt().to(away)[:, None]
            covariance += away.T @ away
        return cls(
            unembedding[heavy], weights[heavy], rest, mean, covariance.to(unembedding), farthest
        )

    def follow(
        self, moves: Float[Tensor, "variant d_model"]
    ) -> tuple[Float[Tensor, " variant"], Float[Tensor, " variant"]]:
        """Return how far each move changes the log of the sum, and what that is off by at most."""
        products = einsum(moves, self.heavy, "variant d_model, token d_model -> variant token")
        exact = products.double().exp() @ self.weights
        turned = einsum(moves, self.covariance, "variant d_model, d_model other -> variant other")
        variance = reduce(turned.double() * moves, "variant d_model -> variant", "sum")
        reach = self.farthest * torch.linalg.vector_norm(moves, dim=-1).double()
        grown = variance * reach.exp()
        error = (reach + grown) * grown / 6
        others = self.rest * (moves.double() @ self.mean + variance / 2).exp()
        most = others * error.exp()
        return (exact + others).log(), error / (1 + exact / most)

"""How far the predictions of two models drift apart on texts: KL divergence per token, in nats.

KL = Σ_t p_t (log p_t − log p'_t)      p before, p' after, at every token of the texts
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.errors import DataRefused
from ffnprobe.models.forward import forward
from ffnprobe.models.model import Model
from ffnprobe.tracing.runs import TOKENS_AT_ONCE

LONGEST = 128


@dataclass(frozen=True, eq=False)
class Drift:
    """The divergence at every token of some texts."""

    values: Float[Tensor, " token"]

    @property
    def figures(self) -> dict[str, float]:
        """The mean, the middle, the 99th hundredth and the most."""
        v = self.values
        return {
            "tokens": float(len(v)), "mean_kl": float(v.mean()), "median_kl": float(v.median()),
            "kl_99_percent": float(v.quantile(0.99)), "most_kl": float(v.max()),
        }  # fmt: skip


@torch.no_grad()
def measure_drift(before: Model, after: Model, texts: Sequence[str]) -> Drift:
    """Run texts on both models, in passages of at most 128 tokens, and compare every prediction."""
    first = before.vocab.bos if before.vocab.puts_bos(None) else None
    bos = [] if first is None else [first]
    most = min(LONGEST, before.config.positions) - len(bos)
    by_length: dict[int, list[list[int]]] = {}
    for text in texts:
        ids = before.vocab.ids(text) if text else []
        for start in range(0, len(ids), most):
            part = [*bos, *ids[start : start + most]]
            by_length.setdefault(len(part), []).append(part)
    found = []
    for length, parts in sorted(by_length.items()):
        size = max(1, TOKENS_AT_ONCE // length)
        for start in range(0, len(parts), size):
            batch = torch.tensor(parts[start : start + size])
            old, new = (forward(one, batch, {}).log_softmax(-1) for one in (before, after))
            # Rounding may leave a divergence of nothing a little below nothing.
            found.append((old.exp() * (old - new)).sum(-1)[:, len(bos) :].clamp(min=0).flatten())
    if not found:
        raise DataRefused("the text is empty.", remedy="some text to compare predictions on")
    return Drift(torch.cat(found).cpu())

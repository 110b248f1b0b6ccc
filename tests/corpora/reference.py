"""A scan by brute force: every activation in memory, sorted and summed without any of our merging."""

from dataclasses import dataclass

import numpy as np
import torch

from ffnprobe.models.forward import capture
from ffnprobe.models.model import Model


@dataclass(frozen=True)
class Everything:
    """All activations `[layer token neuron]`, and for each token its text, position and passage."""

    activations: np.ndarray
    scores: np.ndarray
    texts: np.ndarray
    positions: np.ndarray
    passages: np.ndarray
    offsets: np.ndarray

    def examples(self, layer: int, neuron: int, k: int, *, by: str, sign: int) -> list[tuple]:
        """List (value, text, position) of the k highest (or lowest), one a passage, ties in order."""
        values = getattr(self, by)[layer, :, neuron]
        order = np.lexsort((self.positions, self.texts, -sign * values))
        found, seen = [], set()
        for token in order:
            if self.passages[token] not in seen:
                seen.add(self.passages[token])
                found.append((values[token], self.texts[token], self.positions[token]))
        return found[:k]


def collect(model: Model, texts: list[list[int]], *, context: int) -> Everything:
    """Run texts of token ids, cut into passages by hand, and keep everything."""
    length = context - 1
    passages = [
        (number, start, ids[start : start + length])
        for number, ids in enumerate(texts)
        for start in range(0, len(ids), length)
    ]
    parts: dict[int, torch.Tensor] = {}
    asked: dict[int, torch.Tensor] = {}
    # Passages of one length run together, so that the numbers are those of the same products.
    for size in sorted({len(ids) for _, _, ids in passages}):
        rows = [n for n, (_, _, ids) in enumerate(passages) if len(ids) == size]
        for chosen in torch.tensor(rows).split(max(1, 1024 // size)):
            ids = torch.tensor([[model.vocab.bos, *passages[int(n)][2]] for n in chosen])
            found = capture(model, ids, ["activations", "scores"])
            parts |= {int(n): found["activations"][:, row, 1:] for row, n in enumerate(chosen)}
            asked |= {int(n): found["scores"][:, row, 1:] for row, n in enumerate(chosen)}
    many = range(len(passages))
    return Everything(
        activations=torch.cat([parts[n] for n in many], dim=1).numpy(),
        scores=torch.cat([asked[n] for n in many], dim=1).numpy(),
        texts=np.concatenate([[passages[n][0]] * len(passages[n][2]) for n in many]),
        positions=np.concatenate([passages[n][1] + np.arange(len(passages[n][2])) for n in many]),
        passages=np.concatenate([[n] * len(passages[n][2]) for n in many]),
        offsets=np.concatenate([np.arange(len(passages[n][2])) for n in many]),
    )

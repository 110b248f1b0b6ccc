"""Tokens drawn at random from a corpus, the same for every neuron: what it does between its extremes.

From each passage one token is drawn, and of the passages `SAMPLE`, by hashes of the passage's number.
So the draw does not depend on how the corpus is cut into blocks, and of two samples the sample of both
is found exactly. Sorted by a neuron's activation, the sample shows its quantiles.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, Int32, Int64
from torch import Tensor

from ffnprobe.corpora.passages import Block
from ffnprobe.corpora.peaks import NO_TOKEN, WINDOW

SAMPLE = 20


@dataclass(frozen=True, eq=False)
class Sample:
    """The tokens drawn, and every neuron's activation and score there; without one, text is −1."""

    passages: Int64[Tensor, " draw"]
    texts: Int64[Tensor, " draw"]
    positions: Int32[Tensor, " draw"]
    windows: Int32[Tensor, "draw window"]
    activations: Float32[Tensor, "layer neuron draw"]
    scores: Float32[Tensor, "layer neuron draw"]


def no_sample(layers: int, neurons: int) -> Sample:
    """Start without tokens."""
    return Sample(
        passages=torch.full((SAMPLE,), -1),
        texts=torch.full((SAMPLE,), -1),
        positions=torch.full((SAMPLE,), -1, dtype=torch.int32),
        windows=torch.full((SAMPLE, WINDOW), NO_TOKEN, dtype=torch.int32),
        activations=torch.full((layers, neurons, SAMPLE), float("nan")),
        scores=torch.full((layers, neurons, SAMPLE), float("nan")),
    )


def merge_samples(a: Sample, b: Sample) -> Sample:
    """Keep the tokens of both whose passages have the highest hashes."""
    passages = torch.cat([a.passages, b.passages])
    chosen = torch.from_numpy(_order(passages.numpy())[: len(a.passages)].copy())
    parts = {name: torch.cat([vars(a)[name], vars(b)[name]]) for name in ("texts", "positions", "windows")}  # fmt: skip
    kept = {name: each[chosen] for name, each in parts.items()}
    numbers = {
        name: torch.cat([vars(a)[name], vars(b)[name]], dim=-1)[..., chosen]
        for name in ("activations", "scores")
    }
    return Sample(passages=passages[chosen], **kept, **numbers)


def draw(block: Block) -> dict[int, tuple[int, int]]:
    """Draw a block's tokens: of each passage chosen, by its number in the block, its slot and offset."""
    numbers = block.first + np.arange(len(block.passages))
    chosen = _order(numbers)[:SAMPLE].tolist()
    offsets = hash_numbers(numbers + 2**40)
    return {
        number: (slot, int(offsets[number] % np.uint64(len(block.passages[number].ids))))
        for slot, number in enumerate(chosen)
    }


def _order(passages: np.ndarray) -> np.ndarray:
    """Order passages by their hashes, the highest first; those that are none last."""
    keys = np.where(passages < 0, np.uint64(0), hash_numbers(passages) | np.uint64(1))
    return np.lexsort((passages, np.iinfo(np.uint64).max - keys))


def hash_numbers(numbers: np.ndarray) -> np.ndarray:
    """Mix numbers into evenly spread ones (splitmix64)."""
    mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))

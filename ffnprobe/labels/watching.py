"""Run half a corpus and hand each layer's activations, a batch at a time, to whoever counts them.

Behind the neurons asked for, each layer has controls: some of the same neurons with their activations
moved to other tokens of the batch at random. They go through the whole search as neurons do, so that
what chance alone would score is measured and not assumed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from ffnprobe.corpora.passages import ScanSettings
from ffnprobe.labels.halves import Half
from ffnprobe.models.forward import watch
from ffnprobe.models.model import Model
from ffnprobe.models.step import Hook
from ffnprobe.names import NeuronId

CONTROLS = 64
# Neurons that a few named ones are compared with.
COMPANY = 16
# Sees a layer's activations and the numbers of their tokens in the half.
See = Callable[[int, Float[Tensor, "token column"], np.ndarray], None]


@dataclass(frozen=True, eq=False)
class Columns:
    """Which neurons of each layer are labelled, and which of them are controls too."""

    neurons: tuple[Tensor, ...]

    @classmethod
    def choose(cls, names: Sequence[NeuronId], *, layers: int, neurons: int) -> "Columns":
        """Sort neurons into layers; where few are named, others of the layer keep them company."""
        rows: list[set[int]] = [set() for _ in range(layers)]
        for name in names:
            rows[name.layer].add(name.neuron)
        others = torch.linspace(0, neurons - 1, min(neurons, COMPANY)).round().long().tolist()
        held = [row | set(others) if row else row for row in rows]
        return cls(tuple(torch.tensor(sorted(row), dtype=torch.int64) for row in held))

    @property
    def layers(self) -> list[int]:
        """The layers with neurons to label."""
        return [layer for layer, row in enumerate(self.neurons) if len(row)]

    def controls(self, layer: int) -> Tensor:
        """Pick a layer's controls, evenly spaced among its neurons."""
        many = len(self.neurons[layer])
        return torch.linspace(0, many - 1, min(many, CONTROLS)).round().long()

    def count(self, layer: int) -> int:
        """How many columns a layer has, neurons and controls."""
        return len(self.neurons[layer]) + len(self.controls(layer))


def watch_block(
    model: Model, half: Half, block: range, settings: ScanSettings, columns: Columns, see: See
) -> None:
    """Run a block of a half's passages; `see` is called for each layer of each batch."""
    for ids, numbers in half.batches(block, settings, model.vocab.bos):
        generator = torch.Generator().manual_seed(int(numbers[0]))
        shuffled = torch.randperm(len(numbers), generator=generator)

        def tap(layer: int, numbers: np.ndarray = numbers, shuffled: Tensor = shuffled) -> Hook:
            def look(activations: Tensor) -> None:
                rows = rearrange(
                    activations[:, int(settings.bos) :], "batch pos neuron -> (batch pos) neuron"
                ).cpu()
                neurons = columns.neurons[layer]
                own = rows if len(neurons) == rows.shape[1] else rows[:, neurons]
                moved = own[:, columns.controls(layer)][shuffled]
                see(layer, torch.cat([own, moved], dim=1), numbers)

            return look

        watch(model, ids, {("activations", layer): tap(layer) for layer in columns.layers})

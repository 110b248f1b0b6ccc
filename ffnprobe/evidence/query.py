"""What `explain` asks about: one answer on one prompt, and how neurons are removed from it.

Every measurement of an explanation goes through here, so that all of them have one rival, one removal
and one convention. An answer of several tokens is teacher-forced: pushes and effects are added up over
its pieces, and neurons are looked for at the prompt's positions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypedDict

import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.interventions.ablation import (
    Effects,
    LayerEffects,
    ablate,
    ablate_layers,
    ablate_stepwise,
)
from ffnprobe.interventions.choices import Replace
from ffnprobe.interventions.gradients import Estimates, estimate
from ffnprobe.interventions.readout import AnswerValues, read_answer
from ffnprobe.interventions.removal import Removal
from ffnprobe.interventions.sweeps import Change, Progress, sweep_changes
from ffnprobe.names import NeuronId
from ffnprobe.tracing.contrast import Contrast
from ffnprobe.tracing.owners import Owners
from ffnprobe.tracing.path_tables import Source
from ffnprobe.tracing.pushes import Pushes
from ffnprobe.tracing.trace import Trace


class How(TypedDict, total=False):
    """The options that all measurements share."""

    versus: int | None
    convention: str
    replace: Replace
    contrast: Contrast


@dataclass(frozen=True, eq=False)
class Query:
    """An answer, its rival if there is one, and what a removed neuron is set to.

    `owners` are of each piece of the answer. `z` is how far each neuron's answer stands out for the
    token by its weights (of several pieces: the one it stands out for most).
    """

    trace: Trace
    answer: str | int
    pieces: tuple[Pushes, ...]
    owners: tuple[Owners, ...]
    removal: Removal
    z: Float[Tensor, "layer neuron"]
    top: int
    seed: int

    @property
    def last(self) -> int:
        """The position at which the answer begins to be predicted."""
        return len(self.trace) - 1

    @property
    def contrast(self) -> Contrast | None:
        """The contrast prompts, if there are any."""
        return self.removal.by if isinstance(self.removal.by, Contrast) else None

    @cached_property
    def pushes(self) -> Float[Tensor, "layer pos neuron"]:
        """Every neuron's push: direct where a piece is predicted, through attention before it."""
        total = torch.zeros_like(self.trace.activations)
        for piece, owners in zip(self.pieces, self.owners, strict=True):
            through = owners.through[:, : len(self.trace)].clone()
            if piece.position < len(self.trace):
                through[:, piece.position] = piece.values
            total += through
        return total

    @cached_property
    def acted(self) -> Float[Tensor, "layer pos neuron"]:
        """z with the sign the neuron acted with at each position."""
        signs = torch.where(self.trace.activations < 0, -1.0, 1.0)
        return self.z[:, None] * signs

    @cached_property
    def _how(self) -> How:
        first = self.pieces[0]
        how = How(versus=first.versus, convention=first.convention)
        if isinstance(self.removal.by, Contrast):
            how["contrast"] = self.removal.by
        else:
            how["replace"] = self.removal.by
        return how

    def map_effects(self) -> LayerEffects:
        """Remove every MLP layer at every position."""
        return ablate_layers(self.trace, self.answer, log_probability=False, **self._how)

    def sweep(self, progress: Progress | None) -> Iterator[Effects]:
        """Remove every neuron at the last position, layer by layer."""
        return ablate_stepwise(
            self.trace, self.answer, log_probability=False, progress=progress, **self._how
        )

    def remove(self, neurons: Sequence[NeuronId], *, position: int) -> Effects:
        """Remove these neurons at a position, one at a time."""
        return ablate(
            self.trace, self.answer, position=position, neurons=neurons, log_probability=False,
            **self._how,
        )  # fmt: skip

    def propose(self) -> Estimates:
        """Estimate every neuron's effect at every position."""
        return estimate(self.trace, self.answer, **self._how)

    def remove_groups(
        self, groups: Sequence[Sequence[Source]], *, alone: bool = False
    ) -> AnswerValues:
        """Remove groups of neurons, each at its position; `alone` reads the answer without its rival."""
        first = self.pieces[0]
        readout = read_answer(
            self.trace, self.answer, versus=None if alone else first.versus,
            convention=first.convention,
        )  # fmt: skip
        return sweep_changes(readout, [[self.change(one) for one in group] for group in groups])

    def change(self, source: Source, position: int | None = None) -> Change:
        """Say what a removed neuron is set to; on another prompt it has another position."""
        (layer, neuron), here = (source[0].layer, source[0].neuron), source[1]
        given = self.replacement
        value = float(given[layer, here if given.shape[1] > 1 else 0, neuron])
        return Change(layer, here if position is None else position, neuron, value)

    @cached_property
    def replacement(self) -> Float[Tensor, "layer #pos neuron"]:
        """What removed neurons are set to on the prompt."""
        return self.removal.on(self.trace)

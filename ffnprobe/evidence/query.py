"""What `explain` asks about: one answer on one prompt, and how neurons are removed from it.

Every measurement of an explanation goes through here, so that all of them have one rival, one removal
and one convention. An answer of several tokens is teacher-forced: pushes and effects are added up over
its pieces, and neurons are looked for at the prompt's positions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypedDict

import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.interventions.ablation import Effects, LayerEffects, ablate_stepwise, map_layers
from ffnprobe.interventions.batches import Progress
from ffnprobe.interventions.choices import Replace
from ffnprobe.interventions.gradients import measure_slopes
from ffnprobe.interventions.group_changes import sweep_changes
from ffnprobe.interventions.readout import AnswerValues, Readout, read_answer
from ffnprobe.interventions.removal import Removal
from ffnprobe.interventions.replay import Stream
from ffnprobe.interventions.single_changes import sweep_singles
from ffnprobe.interventions.sweeps import Change
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

    @cached_property
    def readout(self) -> Readout:
        """What is read of a replay; one replay serves all measurements."""
        return read_answer(
            self.trace, self.answer, versus=self.pieces[0].versus, log_probability=False,
            convention=self.pieces[0].convention,
        )  # fmt: skip

    def map_effects(self, positions: Sequence[int]) -> LayerEffects:
        """Remove every MLP layer at each of the positions."""
        clean = self.readout.check(self._replayed[1])
        return map_layers(self.readout, self.removal, self.trace, positions=positions, clean=clean)

    def sweep(self, progress: Progress | None) -> Iterator[Effects]:
        """Remove every neuron at the last position, layer by layer."""
        return ablate_stepwise(
            self.trace, self.answer, log_probability=False, progress=progress, **self._how
        )

    def remove_each(
        self, sources: Sequence[Source], progress: Progress | None = None
    ) -> dict[Source, float]:
        """Remove neurons, each at its position, one at a time: what the answer loses."""
        replay, each = self.readout.replay, list(dict.fromkeys(sources))
        if not each:
            return {}
        sites = [(name.layer, position) for name, position in each]
        gaps = torch.stack([self._gaps[n.layer, position, n.neuron] for n, position in each])
        rows = torch.stack([replay.model.rows[n.layer, n.neuron] for n, _ in each])
        moves = replay.held(gaps)[:, None] * replay.held(rows)
        for layer, position in dict.fromkeys(sites) if replay.model.config.has_post_norms else ():
            own = [number for number, site in enumerate(sites) if site == (layer, position)]
            moves[own] = replay.moved(layer, position, moves[own])
        lost = sweep_singles(self.readout, sites, moves, progress=progress)
        return dict(zip(each, lost.logit.tolist(), strict=True))

    @cached_property
    def _gaps(self) -> Float[Tensor, "layer pos neuron"]:
        return self.removal.on(self.readout.replay.trace) - self.readout.replay.trace.activations

    @cached_property
    def estimates(self) -> Float[Tensor, "layer pos neuron"]:
        """An estimate of every neuron's effect at every position."""
        return (-self._gaps * self._replayed[0])[:, : len(self.trace)]

    @cached_property
    def _replayed(self) -> tuple[Float[Tensor, "layer pos neuron"], Stream]:
        """The clean prompt replayed once, for its gradients and to check the replay."""
        return measure_slopes(self.readout)

    def remove_groups(
        self, groups: Sequence[Sequence[Source]], *, alone: bool = False
    ) -> AnswerValues:
        """Remove groups of neurons, each at its position; `alone` reads the answer without its rival."""
        versus = None if alone else self.readout.versus
        readout = replace(self.readout, versus=versus, has_log_probability=versus is None)
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

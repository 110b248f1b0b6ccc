"""What `explain` asks about: one answer on one prompt, and how neurons are removed from it.

Every measurement of an explanation goes through here, so that all of them have one rival, one
replacement and one convention.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from ffnprobe.interventions.ablation import (
    Effects,
    GroupEffects,
    LayerEffects,
    ablate,
    ablate_layers,
    ablate_stepwise,
    ablate_together,
)
from ffnprobe.interventions.choices import Replace
from ffnprobe.interventions.gradients import Estimates, estimate
from ffnprobe.interventions.sweeps import Progress
from ffnprobe.names import NeuronId
from ffnprobe.tracing.pushes import Pushes
from ffnprobe.tracing.trace import Trace


@dataclass(frozen=True, eq=False)
class Query:
    """An answer (one token), its rival if there is one, and what replaces a removed neuron.

    `z` is how far each neuron's answer stands out for the token by its weights; `control` marks the
    random neurons that others are compared with.
    """

    pushes: Pushes
    replace: Replace
    z: Float[Tensor, "layer neuron"]
    control: Bool[Tensor, "layer neuron"]
    top: int
    seed: int

    @property
    def trace(self) -> Trace:
        return self.pushes.trace

    @property
    def token(self) -> int:
        return self.pushes.answer

    def map_effects(self) -> LayerEffects:
        """Remove every MLP layer at every position."""
        return ablate_layers(
            self.trace, self.token, versus=self.pushes.versus, replace=self.replace,
            log_probability=False, convention=self.pushes.convention,
        )  # fmt: skip

    def sweep(self, progress: Progress | None) -> Iterator[Effects]:
        """Remove every neuron at the last position, layer by layer."""
        return ablate_stepwise(
            self.trace, self.token, versus=self.pushes.versus, replace=self.replace,
            log_probability=False, convention=self.pushes.convention, progress=progress,
        )  # fmt: skip

    def remove(self, neurons: Sequence[NeuronId], *, position: int) -> Effects:
        """Remove these neurons at a position, one at a time."""
        return ablate(
            self.trace, self.token, versus=self.pushes.versus, replace=self.replace,
            position=position, neurons=neurons, log_probability=False, convention=self.pushes.convention,
        )  # fmt: skip

    def propose(self) -> Estimates:
        """Estimate every neuron's effect at every position."""
        return estimate(
            self.trace, self.token, versus=self.pushes.versus, replace=self.replace,
            convention=self.pushes.convention,
        )  # fmt: skip

    def remove_groups(
        self, groups: Sequence[Sequence[NeuronId]], *, position: int, alone: bool = False
    ) -> GroupEffects:
        """Remove groups of neurons at a position; `alone` reads the answer without its rival."""
        return ablate_together(
            self.trace, self.token, groups, versus=None if alone else self.pushes.versus,
            replace=self.replace, position=position, convention=self.pushes.convention,
        )  # fmt: skip

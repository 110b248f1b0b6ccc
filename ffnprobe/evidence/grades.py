"""Grades of evidence that a neuron carries an answer: how many of three independent tests it passes.

    weights   its answer, in the direction it acted here, has z ≥ 2 for the token
    push      it pushed the token directly, harder than 99 in 100 random neurons
    effect    removing it costs the token more than removing 99 in 100 random neurons

A passes all three, B two, C one; a neuron that passes none has no grade. The random neurons (the
control) are drawn once per prompt with a seed and measured at the same position. A grade says how
much speaks for the neuron, not that the fact is stored in it.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ffnprobe.models.model import Model

Z_AT_LEAST = 2.0
BEYOND = 0.99
CONTROLS = 200
LETTERS = {3: "A", 2: "B", 1: "C", 0: ""}


def draw_control(model: Model, *, seed: int) -> Bool[Tensor, "layer neuron"]:
    """Mark the random neurons that the others are compared with."""
    c = model.config
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.zeros(c.neurons, dtype=torch.bool)
    chosen[torch.randperm(c.neurons, generator=generator)[:CONTROLS]] = True
    return chosen.reshape(c.layers, c.d_mlp)


@dataclass(frozen=True)
class Bar:
    """What a push and an effect must exceed; no effect bar where none was measured."""

    push: float
    effect: float | None

    @classmethod
    def over(
        cls,
        control: Bool[Tensor, "layer neuron"],
        pushes: Float[Tensor, "layer neuron"],
        effects: Float[Tensor, "layer neuron"] | None,
    ) -> "Bar":
        """Set the bar where 99 in 100 of the random neurons stay below it, and never below zero."""

        def bar(values: Tensor) -> float:
            return max(0.0, float(values[control].double().quantile(BEYOND)))

        return cls(bar(pushes), None if effects is None else bar(effects))

    def grade(self, *, z: float, activation: float, push: float, effect: float | None) -> str:
        """Count the tests a neuron passes."""
        acted = -z if activation < 0 else z
        passed = [acted >= Z_AT_LEAST, push > self.push]
        if self.effect is not None and effect is not None:
            passed.append(effect > self.effect)
        return LETTERS[sum(passed)]

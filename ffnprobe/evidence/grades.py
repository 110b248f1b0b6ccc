"""Grades of evidence that a neuron carries an answer: how many of three independent tests it passes.

    weights   its answer, in the direction it acted here, has z ≥ 2 for the token
    push      it pushed the token harder than neurons like it do by chance
    effect    removing it costs the token more than removing neurons like it does by chance

A passes all three, B two, C one; a neuron that passes none has no grade. An answer the model ranks
beyond 100 gets no A.

Neurons like it (the control) are drawn from the same layer, among those with the nearest activation
sizes at the same position. The bar is the higher of two: what 99 in 100 of the control stay below, and

    median + q · 1.4826 · median absolute deviation        q = Φ⁻¹(1 − 0.05 / neurons looked at)

so that of all the neurons looked at, chance alone would lift about one in twenty prompts' best over it
if their values were normal. A grade says how much speaks for the neuron, not that the fact is stored
in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ffnprobe.names import NeuronId

Z_AT_LEAST = 2.0
BEYOND = 0.99
CHANCE = 0.05
CONTROLS = 200
NEAREST = 20
LETTERS = {3: "A", 2: "B", 1: "C", 0: ""}
# Beyond these ranks an answer gets no A; beyond the other, words say the model would not give it.
RANK_FOR_A = 100
RANK_SAID = 10


def draw_alike(
    sizes: Float[Tensor, "layer neuron"],
    chosen: Sequence[NeuronId],
    many: int,
    *,
    generator: torch.Generator,
) -> list[NeuronId]:
    """Draw neurons like those chosen: of the same layers, with the nearest activation sizes."""
    taken: dict[int, list[int]] = {}
    for one in chosen:
        taken.setdefault(one.layer, []).append(one.neuron)
    own, drawn = sizes.numpy(), list[NeuronId]()
    nearest: dict[int, np.ndarray] = {}
    order = torch.randint(len(chosen), (many,), generator=generator).tolist() if chosen else []
    for pick in order:
        name = chosen[pick]
        if pick not in nearest:
            gaps = np.abs(own[name.layer] - own[name.layer, name.neuron])
            gaps[taken[name.layer]] = np.inf
            most = min(NEAREST, int(np.isfinite(gaps).sum()))
            found = np.sort(np.argpartition(gaps, max(most, 1) - 1)[:most])
            nearest[pick] = found[np.argsort(gaps[found], kind="stable")]
        if len(alike := nearest[pick]):
            number = int(torch.randint(len(alike), (1,), generator=generator))
            drawn.append(NeuronId(name.layer, int(alike[number])))
    return drawn


@dataclass(frozen=True)
class Bar:
    """What a push and an effect must exceed; no effect bar where none was measured."""

    push: float
    effect: float | None

    @classmethod
    def over(
        cls,
        pushes: Float[Tensor, " control"],
        effects: Float[Tensor, " control"] | None,
        *,
        looked_at: int,
    ) -> "Bar":
        """Set the bars over a control's pushes and effects."""
        return cls(
            find_bar(pushes, looked_at=looked_at),
            None if effects is None else find_bar(effects, looked_at=looked_at),
        )

    def count(
        self,
        acted: Float[Tensor, "*shape"],
        pushes: Float[Tensor, "*shape"],
        effects: Float[Tensor, "*shape"] | None,
    ) -> Int[Tensor, "*shape"]:
        """Count the tests that neurons pass; what was not measured is not passed."""
        passed = (acted >= Z_AT_LEAST).int() + (pushes > self.push).int()
        if self.effect is not None and effects is not None:
            passed = passed + (effects > self.effect).int()
        return passed


def find_bar(values: Float[Tensor, " control"], *, looked_at: int) -> float:
    """Return what no value exceeds by chance, however many are looked at; never below zero."""
    own = values.double()
    if not len(own):
        return 0.0
    middle = float(own.quantile(0.5))
    spread = 1.4826 * float((own - middle).abs().quantile(0.5))
    corrected = middle + NormalDist().inv_cdf(1 - CHANCE / max(1, looked_at)) * spread
    return max(0.0, float(own.quantile(BEYOND)), corrected)


def name_grade(passed: int, *, rank: int) -> str:
    """Turn tests passed into a letter; an answer of a high rank gets no A."""
    return LETTERS[min(passed, 2) if rank > RANK_FOR_A else passed]

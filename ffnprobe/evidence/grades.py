"""Grades of evidence that a neuron carries an answer: how many of three tests it passes.

    weights   its answer, in the direction it acted here, stands out for the token: z ≥ q
    push      it pushed the token harder than neurons like it do by chance
    effect    removing it costs the token more than removing neurons like it does by chance

A passes all three, and its effect is at least 2 % of what all neurons are worth here; B passes two (or
three, for less), C one; a neuron that passes none has no grade. An answer the model ranks beyond 100 gets no
A. A question mark says that a push or an effect is within a quarter of its bar, and the letter hangs on it:
another draw of neurons like these may change it.

Neurons like it (the control) are 200 of the same position and layers, drawn among those with the nearest
activation sizes. Their pushes are known, their effects are estimated. The bar is the higher of two: what 99
in 100 of the control stay below, and

    median + q · 1.4826 · median absolute deviation        q = Φ⁻¹(1 − 0.05 / sites looked at)

so that of all the sites looked at (neurons at positions), chance alone would lift about one in twenty prompts'
best over it if their values were normal. z is a number of standard deviations, and q is its bar. A grade says
how much speaks for the neuron, not that the fact is stored in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.names import NeuronId

BEYOND = 0.99
CHANCE = 0.05
CONTROLS = 200
NEAREST = 20
SIZE = 0.02  # of what all neurons are worth
NEAR = 0.25  # of a bar
LETTERS = {3: "A", 2: "B", 1: "C", 0: ""}
# Beyond these ranks an answer gets no A; beyond the other, words say the model would not give it.
RANK_FOR_A = 100
RANK_SAID = 10


@dataclass(frozen=True)
class Bars:
    """What z, a push and an effect must exceed, and the size of an effect without which there is no A."""

    z: float
    push: float
    effect: float
    size: float

    def grade(self, z: float, push: float, effect: float, *, rank: int) -> str:
        """Count the tests passed; what was not measured (NaN) is not passed."""
        letters = [self._letter(z, push, effect, rank, s) for s in (1, 1 - NEAR, 1 + NEAR)]
        return letters[0] + ("?" if letters[0] and len(set(letters)) > 1 else "")

    def _letter(self, z: float, push: float, effect: float, rank: int, scale: float) -> str:
        passed = (z >= self.z) + (push > scale * self.push) + (effect > scale * self.effect)
        has_a = effect >= self.size and rank <= RANK_FOR_A
        return LETTERS[passed if has_a else min(passed, 2)]


def find_bar(values: Float[Tensor, " control"], *, looked_at: int) -> float:
    """Return what no value exceeds by chance, however many are looked at; never below zero."""
    own = values.double()
    if not len(own):
        return 0.0
    middle = float(own.quantile(0.5))
    spread = 1.4826 * float((own - middle).abs().quantile(0.5))
    return max(0.0, float(own.quantile(BEYOND)), middle + far(looked_at) * spread)


def far(looked_at: int) -> float:
    """Return how many standard deviations the best of so many exceeds once in twenty times."""
    return NormalDist().inv_cdf(1 - CHANCE / max(1, looked_at))


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

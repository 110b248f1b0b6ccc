"""The three methods: how requests become changes of W_down, layer after layer.

    rome        each fact by itself, one layer, exactly (Meng et al. 2022)
    memit       all facts at once, over several layers, by least squares (Meng et al. 2023)
    alphaedit   as memit, in the directions the corpus does not use, sparing earlier edits (Fang et al. 2025)

memit and alphaedit aim at the stream that leaves the last of their layers: each layer takes an equal
share of what is missing, measured again after the layers before it were changed. Where MLPs write
through a norm (Gemma) a share of a stream is not a share of an MLP's output, and one layer takes all.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.editing.key_moments import KeyMoments
from ffnprobe.editing.requests import Context
from ffnprobe.editing.solves import (
    LowRank,
    solve_alphaedit,
    solve_memit,
    solve_rome,
)
from ffnprobe.editing.tails import Tails, open_tails
from ffnprobe.editing.targets import average_by_request, find_targets
from ffnprobe.errors import DataRefused, OptionRefused
from ffnprobe.models.changes import change_rows
from ffnprobe.models.model import Model

METHODS = ("rome", "memit", "alphaedit")
# memit: the corpus weighs as so many tokens for each neuron; the first weight at which every answer has a
# probability of more than a half is taken, else the last.
CORPUS_WEIGHTS = (4.0, 2.0, 1.0, 0.5, 0.25, 0.1)
WRITTEN = 0.5
# alphaedit: the directions that hold this share of the keys' squares are free, and its ridge is this
# share of a new key's square there.
FREE_SHARE, RIDGE = 0.02, 0.05

Written = Sequence[Sequence[Context]]
Keys = dict[int, Float[Tensor, "fact neuron"]]


@dataclass(frozen=True, eq=False)
class Progressed:
    """A model on its way: the changes made so far, the keys written, and what was reached."""

    model: Model
    changes: tuple[LowRank, ...] = ()
    keys: Keys | None = None
    steps: int = 0

    def adding(self, change: LowRank, keys: Float[Tensor, "fact neuron"]) -> "Progressed":
        """Change one layer, and remember which keys were written there."""
        held = dict(self.keys or {})
        held[change.layer] = torch.cat(
            [*([held[change.layer]] if change.layer in held else []), keys]
        )
        model = change_rows(self.model, {change.layer: change.whole})
        return replace(self, model=model, changes=(*self.changes, change), keys=held)


def check_method(method: str) -> None:
    """Refuse a method that is none."""
    if method not in METHODS:
        raise OptionRefused(f'"{method}" is not a method of editing.', remedy=", ".join(METHODS))


def write_facts(
    method: str, state: Progressed, layers: Sequence[int], written: Written, moments: KeyMoments
) -> Progressed:
    """Change the layers so that every request is met, by the method named."""
    try:
        if method == "rome":
            return _write_singly(state, layers[-1], written, moments)
        return _spread(method, state, layers, written, moments)
    except DataRefused as error:
        for layer in layers:
            moments.check_solvable(layer)
        raise DataRefused(f"{error.what}.", remedy="scan_keys over more text") from None


def _write_singly(
    state: Progressed, layer: int, written: Written, moments: KeyMoments
) -> Progressed:
    for contexts in written:
        found = find_targets(state.model, layer, [contexts])
        change = solve_rome(layer, moments.of(layer), found.keys[0], found.shifts[0])
        state = replace(state.adding(change, found.keys), steps=state.steps + found.steps)
    return state


def _spread(
    method: str, state: Progressed, layers: Sequence[int], written: Written, moments: KeyMoments
) -> Progressed:
    last = layers[-1]
    found = find_targets(state.model, last, written)
    state = replace(state, steps=state.steps + found.steps)
    start = _measure(state.model, last, written, _leaving)
    for weight in CORPUS_WEIGHTS if method == "memit" else (None,):
        tried = state
        for order, layer in enumerate(layers):
            keys = _measure(tried.model, layer, written, lambda tails: tails.keys)
            moved = _measure(tried.model, last, written, _leaving) - start if order else 0.0
            missing = (found.shifts - moved) / (len(layers) - order)
            tried = tried.adding(_solve(tried, layer, moments, keys, missing, weight), keys)
        if weight is None or _is_written(tried.model, last, written):
            break
    return tried


def _is_written(model: Model, layer: int, written: Written) -> bool:
    """Say whether every answer is likely in all its contexts, with nothing added."""
    return bool((find_targets(model, layer, written, steps=0).probabilities > WRITTEN).all())


def _solve(
    state: Progressed, layer: int, moments: KeyMoments, keys: Tensor, missing: Tensor,
    weight: float | None,
) -> LowRank:  # fmt: skip
    """Solve memit's least squares with the corpus' weight; without a weight, alphaedit's."""
    moment = moments.of(layer)
    if weight is not None:
        return solve_memit(layer, moment, keys, missing, weight=weight * len(moment))
    free = moments.free(layer, FREE_SHARE)
    earlier = (state.keys or {}).get(layer, keys[:0])
    inside = float(((keys.double() @ free) * keys.double()).sum(-1).mean())
    return solve_alphaedit(layer, free, keys, missing, earlier=earlier, ridge=RIDGE * inside)


def _leaving(tails: Tails) -> Tensor:
    return tails.after[:, 0]


def _measure(
    model: Model, layer: int, written: Written, read: Callable[[Tails], Tensor]
) -> Float[Tensor, "fact wide"]:
    """Read something at the subjects' last tokens, averaged over each request's contexts."""
    found = []
    for contexts in written:
        own = [replace(one, owner=0) for one in contexts if one.pieces]
        found.append(average_by_request(own, read(open_tails(model, layer, own))))
    return torch.cat(found)

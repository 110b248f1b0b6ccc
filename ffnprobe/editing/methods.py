"""The three methods: how requests become changes of W_down, layer after layer.

    rome        each fact by itself, one layer, exactly (Meng et al. 2022)
    memit       all facts at once, over several layers, by least squares (Meng et al. 2023)
    alphaedit   as memit, in the directions the corpus does not use, sparing earlier edits (Fang et al. 2025)

memit and alphaedit aim at the stream that leaves the last of their layers: each layer takes an equal
share of what is missing, measured again after the layers before it were changed. Where MLPs write
through a norm (Gemma) a share of a stream is not a share of an MLP's output, and one layer takes all.

v* makes the answer likely. With δ added to what the layer's answers add up to at the subject's last
token, Adam descends, for each request by itself,

    − mean over contexts of log P(answer)  +  KL_WEIGHT · KL(clean ‖ shifted) after "SUBJECT is a"
    +  DECAY · (‖δ‖ / size)²               with ‖δ‖ ≤ CLAMP · size

v is the clean output, averaged over the contexts, and v* = v + δ. `size` is the norm of the stream
that δ is added to, or of v where a norm rescales it (Gemma); steps are shares of it, whatever the
model's scale. A request whose answer has the probability ENOUGH in every context stops; so the cost is
as many tails as the fact needs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.editing.key_moments import KeyMoments
from ffnprobe.editing.requests import Context, Tails, open_tails
from ffnprobe.editing.solves import LowRank, solve_alphaedit, solve_memit, solve_rome
from ffnprobe.errors import DataRefused
from ffnprobe.models.loading import change_rows
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

STEPS, STEP, CLAMP = 30, 0.1, 2.0
SLOWLY = 10  # steps by which a step grows by its first length: a fact that resists is pushed harder
KL_WEIGHT, DECAY = 0.0625, 0.05
ENOUGH = 0.95
# Contexts run together: their activations are kept for the gradient.
CONTEXTS_AT_ONCE = 96


class Targets(NamedTuple):
    """For each request, its key, and how far the layer's output must move at it."""

    keys: Float[Tensor, "fact neuron"]
    outputs: Float[Tensor, "fact d_model"]
    shifts: Float[Tensor, "fact d_model"]
    probabilities: Float[Tensor, " fact"]
    steps: int


def find_targets(model: Model, layer: int, written: Written, *, steps: int = STEPS) -> Targets:
    """Find v* for each request, given in its contexts, a few requests at a time."""
    size = max(1, CONTEXTS_AT_ONCE // max(map(len, written)))
    parts = []
    for start in range(0, len(written), size):
        contexts = [
            replace(context, owner=order)
            for order, several in enumerate(written[start : start + size])
            for context in several
        ]
        parts.append(_optimise(open_tails(model, layer, contexts), steps))
    *columns, taken = zip(*parts, strict=True)
    keys, outputs, shifts, probabilities = (torch.cat(column) for column in columns)
    return Targets(keys, outputs, shifts, probabilities, max(taken))


def average_by_request(
    contexts: Sequence[Context], rows: Float[Tensor, "prompt wide"]
) -> Float[Tensor, "fact wide"]:
    """Average rows over the contexts of each request that have its answer."""
    own = [order for order, one in enumerate(contexts) if one.pieces]
    owners = torch.tensor([contexts[order].owner for order in own], device=rows.device)
    counts = torch.bincount(owners)
    total = torch.zeros(len(counts), rows.shape[-1], device=rows.device)
    return total.index_add_(0, owners, rows[own]) / counts[:, None]


def _optimise(tails: Tails, most: int) -> Targets:
    """Descend for all requests of a batch at once; Adam treats every number by itself."""
    contexts, tensor = tails.contexts, partial(torch.tensor, device=tails.model.device)
    owners = tensor([one.owner for one in contexts])
    has_answer = torch.tensor([bool(one.pieces) for one in contexts])
    # Which rows of the log-probabilities are pieces of answers, and which shall stay.
    reads = [(order, one) for order, one in enumerate(contexts) for _ in one.reads]
    is_piece = tensor([bool(one.pieces) for _, one in reads])
    answered = tensor([order for order, one in reads if one.pieces])
    tokens = tensor([piece for one in contexts for piece in one.pieces])
    stays = tensor([one.owner for _, one in reads if not one.pieces])
    counts = torch.bincount(owners[has_answer])
    facts = len(counts)
    average = partial(average_by_request, contexts)
    outputs = average(tails.totals)
    # A shift is measured by the stream it is added to, or by what a norm will rescale.
    measure = tails.totals if tails.model.config.has_post_norms else tails.after[:, 0]
    sizes = average(measure.norm(dim=-1, keepdim=True))
    with torch.no_grad():
        clean = tails.log_probabilities(torch.zeros_like(tails.totals))[~is_piece]
    # In units of size / sqrt(d_model): a step of Adam is then a share of size long.
    unit = sizes / outputs.shape[-1] ** 0.5
    shares = torch.zeros_like(outputs, requires_grad=True)
    descent = torch.optim.Adam([shares], lr=STEP)
    held = torch.zeros_like(outputs)
    is_done = torch.zeros(facts, dtype=torch.bool, device=owners.device)
    reached = torch.zeros(facts, device=owners.device)
    steps = 0
    for steps in range(most + 1):
        with torch.enable_grad():
            shifts = shares * unit
            logs = tails.log_probabilities(shifts[owners])
            pieces = logs[is_piece][torch.arange(len(tokens)), tokens]
            answers = torch.zeros(len(owners), device=logs.device).index_add(0, answered, pieces)
            likely = torch.zeros(facts).index_add(0, owners[has_answer], answers[has_answer])
            gap = (clean.exp() * (clean - logs[~is_piece])).sum(-1)
            gaps = torch.zeros(facts).index_add(0, stays, gap)
            decay = (shifts.norm(dim=-1) / sizes[:, 0]) ** 2
            losses = -likely / counts + KL_WEIGHT * gaps + DECAY * decay
        with torch.no_grad():
            least = torch.full((facts,), float("inf"))
            least = least.scatter_reduce(0, owners[has_answer], answers[has_answer], "amin")
            now = ~is_done
            held[now], reached[now] = shifts.detach()[now], least.exp()[now]
            is_done |= reached >= ENOUGH
        if is_done.all() or steps == most:
            break
        descent.param_groups[0]["lr"] = STEP * (1 + steps / SLOWLY)
        descent.zero_grad()
        losses[~is_done].sum().backward()
        descent.step()
        with torch.no_grad():
            norms = shares.norm(dim=-1, keepdim=True)
            longest = CLAMP * outputs.shape[-1] ** 0.5
            shares *= (longest / norms.clamp(min=1e-12)).clamp(max=1.0)
    return Targets(average(tails.keys), outputs, held, reached, steps)


@dataclass(frozen=True, eq=False)
class EditState:
    """A model on its way: what was written so far in each layer, and the steps taken."""

    model: Model
    keys: Mapping[int, Float[Tensor, "fact neuron"]]
    changes: Mapping[int, LowRank]
    steps: int = 0

    def adding(self, change: LowRank, keys: Float[Tensor, "fact neuron"]) -> "EditState":
        """Change one layer, and remember which keys were written there."""
        layer, earlier = change.layer, self.changes.get(change.layer)
        model = change_rows(self.model, {layer: change.whole})
        if earlier is not None:  # factors side by side
            keys = torch.cat([self.keys[layer], keys])
            left = torch.cat([earlier.left, change.left], dim=1)
            change = LowRank(layer, left, torch.cat([earlier.right, change.right]))
        changes = {**self.changes, layer: change}
        return replace(self, model=model, keys={**self.keys, layer: keys}, changes=changes)


def write_facts(
    method: str, state: EditState, layers: Sequence[int], written: Written, moments: KeyMoments
) -> EditState:
    """Change the layers so that every request is met, by the method named."""
    try:
        if method != "rome":
            return _spread(method, state, layers, written, moments)
        for contexts in written:
            target = find_targets(state.model, layers[-1], [contexts])
            moment = moments.of(layers[-1])
            change = solve_rome(layers[-1], moment, target.keys[0], target.shifts[0])
            state = replace(state.adding(change, target.keys), steps=state.steps + target.steps)
        return state
    except DataRefused as error:
        for layer in layers:
            moments.check_solvable(layer)
        raise DataRefused(f"{error.what}.", remedy="scan_keys over more text") from None


def _spread(
    method: str, state: EditState, layers: Sequence[int], written: Written, moments: KeyMoments
) -> EditState:
    last = layers[-1]
    leaving = partial(_measure, layer=last, written=written, read=lambda tails: tails.after[:, 0])
    targets = find_targets(state.model, last, written)
    state = replace(state, steps=state.steps + targets.steps)
    start = leaving(state.model)
    for weight in CORPUS_WEIGHTS if method == "memit" else (None,):
        tried = state
        for order, layer in enumerate(layers):
            keys = _measure(tried.model, layer, written, lambda tails: tails.keys)
            moved = leaving(tried.model) - start if order else 0.0
            missing = (targets.shifts - moved) / (len(layers) - order)
            tried = tried.adding(_solve(tried, layer, moments, keys, missing, weight), keys)
        if weight is None:
            break
        # Whether every answer is likely in all its contexts, with nothing added.
        reached = find_targets(tried.model, last, written, steps=0).probabilities
        if bool((reached > WRITTEN).all()):
            break
    return tried


def _solve(
    state: EditState, layer: int, moments: KeyMoments, keys: Tensor, missing: Tensor,
    weight: float | None,
) -> LowRank:  # fmt: skip
    """Solve memit's least squares with the corpus' weight; without a weight, alphaedit's."""
    moment = moments.of(layer)
    if weight is not None:
        return solve_memit(layer, moment, keys, missing, weight=weight * len(moment))
    free = moments.free(layer, FREE_SHARE)
    earlier = state.keys.get(layer, keys[:0])
    inside = float(((keys.double() @ free) * keys.double()).sum(-1).mean())
    return solve_alphaedit(layer, free, keys, missing, earlier=earlier, ridge=RIDGE * inside)


def _measure(
    model: Model, layer: int, written: Written, read: Callable[[Tails], Tensor]
) -> Float[Tensor, "fact wide"]:
    """Read something at the subjects' last tokens, averaged over each request's contexts."""
    measured = []
    for contexts in written:
        own = [one for one in contexts if one.pieces]
        measured.append(average_by_request(own, read(open_tails(model, layer, own))))
    return torch.cat(measured)

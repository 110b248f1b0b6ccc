"""What is asked of a prompt, and what a removed neuron is set to: the same answer had neurons been otherwise.

`ablate`, `estimate`, `circuit` and `explain` begin with one, so that what they measure has one
rival, one removal, one convention, and one replay. An answer of several tokens is teacher-forced: pushes
and effects are added up over its pieces, and neurons are removed at the prompt's positions.

Removed is set to zero, to a mean over a corpus, to given values, or with contrast prompts (the same
sentence about other subjects) to its mean over them at the aligned position. What the answer then loses is
owed to what the prompts differ in: where they begin alike, and where a position has no counterpart, nothing
is removed and the effect is 0. What a user may choose to change is read here too: which positions, which
neurons, and what replaces their activations.

>>> import ffnprobe as fp
>>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
>>> question = ask(trace, " basketball", contrast="Tiger Woods plays the sport of")
>>> question.removal_settings()["replace"], len(question.pieces)
('contrast mean', 1)
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import NamedTuple

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor

from ffnprobe.errors import OptionRefused
from ffnprobe.interventions.replay import Readout, read_question
from ffnprobe.interventions.sweeps import Change, set_activations, sweep_changes
from ffnprobe.models.checkpoint import tell_apart
from ffnprobe.models.model import Means, Model
from ffnprobe.names import NeuronId, Site, split_position
from ffnprobe.provenance import Provenance, Setting
from ffnprobe.tracing.attribution import Question
from ffnprobe.tracing.contrast import Contrast, Prompts, choose_contrast
from ffnprobe.tracing.trace import Trace, predicted

Positions = int | Sequence[int] | str
Replace = str | Float[Tensor, "layer neuron"] | Means
Neurons = Iterable[str | NeuronId]


def choose_positions(trace: Trace, position: Positions) -> list[int]:
    """Return plain positions in order: of one, of several, or `all` (BOS included)."""
    if isinstance(position, str):
        if position != "all":
            raise OptionRefused(
                f'"{position}" is not a position.',
                remedy='a number (-1 is the last), several, or "all"',
            )
        return list(range(len(trace)))
    several = list(position) if isinstance(position, Iterable) else [position]
    if not several:
        raise OptionRefused("there is no position to change.", remedy="-1 is the last")
    return sorted({trace.at(int(one)) for one in several})


def split_positions(
    names: Neurons | None, position: Positions
) -> tuple[Sequence[str] | None, Positions]:
    """Take the position that names carry (`L3N12@2`) from them; all of them must carry the same."""
    if names is None:
        return None, position
    pairs = [split_position(str(name)) for name in names]
    positions = {at for _, at in pairs}
    if positions <= {None}:
        return [name for name, _ in pairs], position
    if len(positions) > 1:
        raise OptionRefused(
            "the neurons named are at several positions, and each is removed by itself at one.",
            remedy="one position at a time, or together",
        )
    if position not in (-1, *positions):
        raise OptionRefused(
            "the names carry another position than the one asked for.", remedy="one of the two"
        )
    return [name for name, _ in pairs], int(str(positions.pop()))


def choose_neurons(model: Model, neurons: Neurons | None) -> Bool[Tensor, "layer neuron"]:
    """Mark the neurons named (`L3N12`, `L3`, `L3N5-L3N9`), or every neuron."""
    marked = torch.full((model.config.layers, model.config.d_mlp), neurons is None)
    if neurons is None:
        return marked
    names = model.find_neurons(neurons)
    if not names:
        raise OptionRefused("no neuron is named.", remedy="L3N12, or leave it out for all")
    marked[[name.layer for name in names], [name.neuron for name in names]] = True
    return marked


def choose_top(top: int | None, many: int, *, is_all: bool) -> int:
    """Say how many rows to show: by default ten; of neurons that were named, never more than those."""
    if top is None:
        return min(10, many)
    return top if is_all else min(top, many)


def choose_replacement(model: Model, replace: Replace) -> Float[Tensor, "layer 1 neuron"]:
    """Return what replaces the activations: zeros, means (the model's, a scan's), a tensor."""
    c = model.config
    if isinstance(replace, Means):
        if other := tell_apart(replace.identity, model.identity):
            is_other = other.startswith("weights")
            words = "other weights" if is_other else f"a model with another {other}"
            raise OptionRefused(
                f"the means are of {words} ({replace.identity[:8]}, not {model.identity[:8]}).",
                remedy=f"scan the texts with {model.name}",
            )
        replace = replace.activations
    if isinstance(replace, str):
        if replace == "zero":
            return torch.zeros(c.layers, 1, c.d_mlp)
        if replace != "mean":
            raise OptionRefused(
                f'"{replace}" cannot replace an activation.', remedy="zero, mean, or a tensor"
            )
        if model.means is None:
            raise OptionRefused(
                f"{model.name} has no activation means: they are measured over a corpus.",
                remedy="ffnprobe scan, then --store (in Python replace=scan.means); or zero",
            )
        replace = model.means
    if tuple(replace.shape) != (c.layers, c.d_mlp):
        raise OptionRefused(
            f"the replacement is {list(replace.shape)}; {model.name} has "
            f"{c.layers} layers × {c.d_mlp} neurons."
        )
    if not replace.isfinite().all():
        raise OptionRefused("the replacement holds activations that are not numbers (NaN or inf).")
    return rearrange(replace.detach().cpu(), "layer neuron -> layer 1 neuron")


def usual_replacement(model: Model, replace: Replace | None) -> Replace:
    """Return what was asked for; by default the model's means where they are known, else zero."""
    if replace is not None:
        return replace
    return "zero" if model.means is None else "mean"


def name_replacement(replace: Replace) -> dict[str, Setting]:
    """Say what replaced the activations, as settings of a provenance."""
    if isinstance(replace, Means):
        return {"replace": "mean", "over": replace.corpus}
    return {"replace": replace if isinstance(replace, str) else "a given tensor"}


@dataclass(frozen=True, eq=False)
class Counterfactual(Question):
    """A question, and what a removed neuron is set to: a replacement, or the mean of a contrast."""

    removed_by: Replace | Contrast

    @property
    def contrast(self) -> Contrast | None:
        """The contrast prompts, if there are any."""
        return self.removed_by if isinstance(self.removed_by, Contrast) else None

    def set_to(self, removed_by: Replace | Contrast) -> "Counterfactual":
        """Ask the same with another removal; what does not depend on it is kept."""
        other = replace(self, removed_by=removed_by)
        depending = {field.name for field in fields(self)} | {"replacement", "gaps"}
        vars(other).update({name: vars(self)[name] for name in vars(self).keys() - depending})
        return other

    @cached_property
    def readout(self) -> Readout:
        """What is read of a replay; one replay serves all measurements."""
        return read_question(self, log_probability=False)

    def read(self, *, log_probability: bool) -> Readout:
        """Return the readout with the answer's log-probability, which a rival has none of."""
        has_one = log_probability and self.readout.versus is None
        return replace(self.readout, has_log_probability=has_one)

    @cached_property
    def replacement(self) -> Float[Tensor, "layer #pos neuron"]:
        """What removed neurons are set to; behind the prompt, at the answer's tokens, nothing is removed."""
        return self.replacement_on(self.readout.replay.trace)

    def replacement_on(self, trace: Trace) -> Float[Tensor, "layer #pos neuron"]:
        """Return what activations are replaced by, on the prompt or on it with an answer behind it."""
        if isinstance(self.removed_by, Contrast):
            return self.removed_by.replacement_for(trace)
        return choose_replacement(trace.model, self.removed_by)

    def removal_settings(self) -> dict[str, Setting]:
        """Say what replaced the activations, as settings of a provenance."""
        if isinstance(self.removed_by, Contrast):
            return {"replace": "contrast mean", **self.removed_by.settings()}
        return name_replacement(self.removed_by)

    @cached_property
    def gaps(self) -> Float[Tensor, "layer pos neuron"]:
        """How far every activation of the prompt is from what it would be set to."""
        return (self.readout.replay.trace.activations - self.replacement)[:, : len(self.trace)]

    def change(self, site: Site, position: int | None = None) -> Change:
        """Say what a removed neuron is set to; on another prompt it has another position."""
        (layer, neuron), here = (site[0].layer, site[0].neuron), site[1]
        value = float(self.replacement[layer, here if self.replacement.shape[1] > 1 else 0, neuron])
        return Change(layer, here if position is None else position, neuron, value)

    @torch.no_grad()
    def remove_groups(self, groups: Sequence[Sequence[Site]]) -> list[float]:
        """Remove the neurons of a group together, each at its position: the effects, in logits."""
        changes = [[self.change(site) for site in group] for group in groups]
        effects: list[float] = sweep_changes(self.readout, changes).logit.tolist()
        return effects

    def remove_each(self, sites: Sequence[Site]) -> dict[Site, float]:
        """Remove neurons, each at its position, one at a time: their effects, in logits."""
        each = list(dict.fromkeys(sites))
        return dict(zip(each, self.remove_groups([[site] for site in each]), strict=True))

    def remove_all(self) -> float:
        """Set every neuron to its replacement at every position of the prompt: the effect, in logits."""
        readout, replay, length = self.readout, self.readout.replay, len(self.trace)
        values = self.replacement.expand_as(replay.trace.activations)[:, :length]
        behind = replay.trace.activations[:, length:]
        every = replay.held(torch.cat([values, behind], dim=1))
        removed = replay.finish(
            replay.entering(0, start=0)[None], layer=0, start=0,
            edit=lambda layer, activations: every[layer][None],
        )  # fmt: skip
        clean = replay.entering(replay.model.config.layers, start=0)[None]
        before, after = (readout.values(final, start=0) for final in (clean, removed))
        return float(before.logit - after.logit)

    def provenance(
        self, *, positions: Sequence[int] = (), settings: dict[str, Setting] | None = None
    ) -> Provenance:
        """Say what was read, and what was changed to what."""
        settings = {**(settings or {}), **self.removal_settings()}
        return self.readout.provenance(self.trace, settings=settings, positions=positions)


def ask(
    trace: Trace,
    answer: str | int | None,
    *,
    versus: str | int | None = None,
    replace: Replace | None = None,
    contrast: Contrast | Prompts | None = None,
    convention: str = "centred",
) -> Counterfactual:
    """Ask about an answer; a removed neuron is set to the model's mean where that is known, else to zero."""
    answer = predicted(trace) if answer is None else answer
    chosen = None if contrast is None else choose_contrast(trace, answer, contrast)
    if chosen is not None and replace is not None:
        raise OptionRefused(
            "with contrast prompts a removed neuron is set to its mean over them, not to another value.",
            remedy="leave out replace, or contrast",
        )
    by = usual_replacement(trace.model, replace) if chosen is None else chosen
    return Counterfactual(trace, answer, versus, convention, len(trace) - 1, by)


class Gradients(NamedTuple):
    """How far the answer follows every activation: by its logit, by its log-odds; 0 where not asked.

    With some changes made: `activations` are then those of the neurons, `logits` those that the answer's
    tokens are read from.
    """

    logit: Float[Tensor, "layer pos neuron"]
    odds: Float[Tensor, "layer pos neuron"]
    activations: Float[Tensor, "layer pos neuron"]
    logits: Float[Tensor, "piece vocab"]


def measure_slopes(
    readout: Readout,
    changes: Sequence[Change] = (),
    *,
    start: int = 0,
    of: Sequence[str] = ("logit",),
) -> Gradients:
    """Take the gradient of the answer along every activation from a position on, by one replay.

    Of `logit`, or of `odds`: log p / (1 - p), of several tokens added up; with a rival both are the lead.
    The replay of the clean prompt is checked against the model's own run.
    """
    replay, activations = readout.replay, readout.replay.trace.activations
    nudges = replay.held(torch.zeros_like(activations[:, start:])).requires_grad_()
    changed = activations.clone()
    slopes = {name: torch.zeros_like(activations) for name in ("logit", "odds")}
    change = set_activations([changes], len(replay.trace))

    def nudge(layer: int, activations: Tensor) -> Tensor:
        # The edit's first variant is the clean one; here there is one variant, with its changes.
        edited = change(layer, activations.repeat(2, 1, 1))[1:] if changes else activations
        changed[layer, start:] = edited[0].detach().cpu()
        return edited + nudges[layer]

    with torch.enable_grad():
        stream = replay.entering(0, start=start)[None]
        final = replay.finish(stream, layer=0, start=start, edit=nudge)
        (logits,) = readout.logits(final, start=start)
        for name in of:
            if name == "logit" or readout.versus is not None:
                value = readout.values(final, start=start).logit.sum()
            else:
                tokens = torch.tensor(readout.tokens, device=logits.device)[:, None]
                rest = logits.scatter(-1, tokens, float("-inf")).logsumexp(-1)
                value = (logits.gather(-1, tokens)[:, 0] - rest).sum()
            (gradient,) = torch.autograd.grad(value, nudges, retain_graph=name != of[-1])
            slopes[name][:, start:] = gradient.cpu()
    if not changes and not start:
        readout.check(final.detach())
    return Gradients(**slopes, activations=changed, logits=logits.detach())

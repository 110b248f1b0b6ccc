"""What is asked of a prompt: an answer, its rival, a convention, and what a removed neuron is set to.

`ablate`, `estimate`, `circuit` and `explain` begin with a question, so that what they measure has one
rival, one removal, one convention, and one replay. An answer of several tokens is teacher-forced: pushes
and effects are added up over its pieces, and neurons are removed at the prompt's positions.

Removed is set to zero, to a mean over a corpus, to given values, or with contrast prompts (the same
sentence about other subjects) to its mean over them at the aligned position. What the answer then loses is
owed to what the prompts differ in: where they begin alike, and where a position has no counterpart, nothing
is removed and the effect is 0.

>>> import ffnprobe as fp
>>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
>>> question = ask(trace, " basketball", contrast="Tiger Woods plays the sport of")
>>> question.removal.settings()["replace"], len(question.pieces)
('contrast mean', 1)
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor

from ffnprobe.arguments import Progress
from ffnprobe.errors import OptionRefused
from ffnprobe.interventions.replay import AnswerValues, Readout, read_answer
from ffnprobe.interventions.sweeps import Change, sweep_changes
from ffnprobe.models.checkpoint import tell_apart
from ffnprobe.models.model import Means, Model
from ffnprobe.names import NeuronId, split_position
from ffnprobe.provenance import Provenance, Setting
from ffnprobe.tracing.attention import Owners, Source, find_owners
from ffnprobe.tracing.attribution import Pushes, PushesByPiece, attribute
from ffnprobe.tracing.contrast import Contrast, Prompts, choose_contrast
from ffnprobe.tracing.trace import Trace, predicted

# MERGED: ffnprobe.interventions.choices
# What a user may choose to change: which positions, which neurons, and what stands in for them.


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
    found = {at for _, at in pairs}
    if found <= {None}:
        return [name for name, _ in pairs], position
    if len(found) > 1:
        raise OptionRefused(
            "the neurons named are at several positions, and each is removed by itself at one.",
            remedy="one position at a time, or together",
        )
    if position not in (-1, *found):
        raise OptionRefused(
            "the names carry another position than the one asked for.", remedy="one of the two"
        )
    return [name for name, _ in pairs], int(str(found.pop()))


def choose_neurons(model: Model, neurons: Neurons | None) -> Bool[Tensor, "layer neuron"]:
    """Mark the neurons named (`L3N12`, `L3`, `L3N5-L3N9`), or every neuron."""
    c = model.config
    if neurons is None:
        return torch.ones(c.layers, c.d_mlp, dtype=torch.bool)
    names = model.find_neurons(neurons)
    if not names:
        raise OptionRefused("no neuron is named.", remedy="L3N12, or leave it out for all")
    marked = torch.zeros(c.layers, c.d_mlp, dtype=torch.bool)
    marked[[name.layer for name in names], [name.neuron for name in names]] = True
    return marked


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
        means = model.means
        if means is None:
            raise OptionRefused(
                f"{model.name} has no activation means: they are measured over a corpus.",
                remedy="ffnprobe scan, then --store (in Python replace=scan.means); or zero",
            )
        replace = means
    if tuple(replace.shape) != (c.layers, c.d_mlp):
        raise OptionRefused(
            f"the replacement is {list(replace.shape)}; {model.name} has "
            f"{c.layers} layers × {c.d_mlp} neurons.",
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
class Removal:
    """How neurons are removed: a replacement, or a contrast."""

    by: Replace | Contrast

    def on(self, trace: Trace) -> Float[Tensor, "layer #pos neuron"]:
        """Return what activations are replaced by, on a prompt or on it with an answer behind it."""
        if isinstance(self.by, Contrast):
            return self.by.replacement_for(trace)
        return choose_replacement(trace.model, self.by)

    def settings(self) -> dict[str, Setting]:
        """Say what replaced the activations, as settings of a provenance."""
        if isinstance(self.by, Contrast):
            return {"replace": "contrast mean", **self.by.settings()}
        return name_replacement(self.by)


@dataclass(frozen=True, eq=False)
class Question:
    """A prompt's run, the answer and its rival, and what a removed neuron is set to."""

    trace: Trace
    answer: str | int
    versus: str | int | None
    convention: str
    removal: Removal

    @property
    def last(self) -> int:
        """The position at which the answer begins to be predicted."""
        return len(self.trace) - 1

    @property
    def contrast(self) -> Contrast | None:
        """The contrast prompts, if there are any."""
        return self.removal.by if isinstance(self.removal.by, Contrast) else None

    def set_to(self, removal: Removal) -> "Question":
        """Ask the same with another removal; what does not depend on it is kept."""
        other = replace(self, removal=removal)
        kept = {"pushes", "owners", "direct_pushes", "attention_pushes", "readout"}
        other.__dict__.update({name: self.__dict__[name] for name in kept & self.__dict__.keys()})
        return other

    @cached_property
    def pushes(self) -> Pushes | PushesByPiece:
        """What every part pushed toward the answer."""
        found = attribute(self.trace, self.answer, versus=self.versus, convention=self.convention)
        assert isinstance(found, Pushes | PushesByPiece)
        return found

    @property
    def pieces(self) -> tuple[Pushes, ...]:
        """The pushes toward each token of the answer."""
        return self.pushes.pieces

    @cached_property
    def owners(self) -> tuple[Owners, ...]:
        """Of each token of the answer: who pushed it once heads are given back to what they carried."""
        return tuple(find_owners(piece) for piece in self.pieces)

    @cached_property
    def direct_pushes(self) -> Float[Tensor, "layer pos neuron"]:
        """Every neuron's direct push, where a token of the answer is predicted; 0 elsewhere."""
        total = torch.zeros_like(self.trace.activations)
        for piece in self.pieces:
            if piece.position < len(self.trace):
                total[:, piece.position] += piece.values
        return total

    @cached_property
    def attention_pushes(self) -> Float[Tensor, "layer pos neuron"]:
        """Every neuron's push through attention, however many heads carried it on."""
        parts = (owners.through[:, : len(self.trace)] for owners in self.owners)
        total = torch.zeros_like(self.trace.activations)
        for part in parts:
            total[:, : part.shape[1]] += part
        return total

    @cached_property
    def readout(self) -> Readout:
        """What is read of a replay; one replay serves all measurements."""
        return read_answer(
            self.trace, self.answer, versus=self.versus, log_probability=False,
            convention=self.convention,
        )  # fmt: skip

    def read(self, *, log_probability: bool) -> Readout:
        """Return the readout with the answer's log-probability, which a rival has none of."""
        has_one = log_probability and self.readout.versus is None
        return replace(self.readout, has_log_probability=has_one)

    @cached_property
    def replacement(self) -> Float[Tensor, "layer #pos neuron"]:
        """What removed neurons are set to; behind the prompt, at the answer's tokens, nothing is removed."""
        return self.removal.on(self.readout.replay.trace)

    @cached_property
    def gaps(self) -> Float[Tensor, "layer pos neuron"]:
        """How far every activation of the prompt is from what it would be set to."""
        return (self.readout.replay.trace.activations - self.replacement)[:, : len(self.trace)]

    def change(self, site: Source, position: int | None = None) -> Change:
        """Say what a removed neuron is set to; on another prompt it has another position."""
        (layer, neuron), here = (site[0].layer, site[0].neuron), site[1]
        given = self.replacement
        value = float(given[layer, here if given.shape[1] > 1 else 0, neuron])
        return Change(layer, here if position is None else position, neuron, value)

    def remove_each(
        self, sites: Sequence[Source], progress: Progress | None = None
    ) -> dict[Source, float]:
        """Remove neurons, each at its position, one at a time: what the answer loses, in logits."""
        each = list(dict.fromkeys(sites))
        groups = [[self.change(site)] for site in each]
        lost = sweep_changes(self.readout, groups, progress=progress)
        return dict(zip(each, lost.logit.tolist(), strict=True))

    def remove_all(self) -> AnswerValues:
        """Read the answer with every neuron set to its replacement at every position of the prompt."""
        replay = self.readout.replay
        given = self.replacement.expand_as(replay.trace.activations)
        own = replay.trace.activations[:, len(self.trace) :]
        every = replay.held(torch.cat([given[:, : len(self.trace)], own], dim=1))
        stream = replay.entering(0, start=0)[None]
        return self.readout.replayed(
            stream, layer=0, start=0, edit=lambda layer, activations: every[layer][None]
        )

    def provenance(
        self, *, positions: Sequence[int] = (), settings: dict[str, Setting] | None = None
    ) -> Provenance:
        """Say what was read, and what was changed to what."""
        known = {**(settings or {}), **self.removal.settings()}
        return self.readout.provenance(self.trace, settings=known, positions=positions)


def ask(
    trace: Trace,
    answer: str | int | None,
    *,
    versus: str | int | None = None,
    replace: Replace | None = None,
    contrast: Contrast | Prompts | None = None,
    convention: str = "centred",
) -> Question:
    """Ask about an answer; a removed neuron is set to the model's mean where that is known, else to zero."""
    answer = predicted(trace) if answer is None else answer
    chosen = choose_contrast(trace, answer, contrast)
    if chosen is not None and replace is not None:
        raise OptionRefused(
            "with contrast prompts a removed neuron is set to its mean over them, not to another value.",
            remedy="leave out replace, or contrast",
        )
    by = usual_replacement(trace.model, replace) if chosen is None else chosen
    return Question(trace, answer, versus, convention, Removal(by))

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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.errors import OptionRefused
from ffnprobe.interventions.choices import (
    Replace,
    choose_replacement,
    name_replacement,
    usual_replacement,
)
from ffnprobe.interventions.readout import AnswerValues, Readout, read_answer
from ffnprobe.interventions.sweeps import Change, sweep_changes
from ffnprobe.options import Progress
from ffnprobe.provenance import Provenance, Setting
from ffnprobe.tracing.attention import Owners, Source, find_owners
from ffnprobe.tracing.attribution import Pushes, PushesByPiece, attribute
from ffnprobe.tracing.contrast import Contrast, Prompts, choose_contrast
from ffnprobe.tracing.trace import Trace, predicted


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

"""Remove neurons and see what the answer loses: the total effect, exact, for every neuron.

    effect = the answer's logit on the clean prompt − its logit with the neuron removed

So a neuron that helps the answer has a positive effect, as it has a positive push; the effect counts
what later layers make of it, the push does not. What a removed neuron is set to, `question` says; zero
is not neutral: most neurons rest a little below it. Effects are `centred`, above the vocabulary's mean,
as pushes are.

Limits: an effect is of one neuron with all others free to react; effects do not add up. Arithmetic is
in fp32: to put a neuron's own activation back has the effect 0 (at most 1e-6 logits where d_model or
d_mlp is not a multiple of 16), and the sign of an effect below 1e-6 logits means nothing.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated, overload

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.arguments import (
    CONTRAST,
    NEURONS,
    POSITIONS,
    REPLACE,
    Answer,
    Convention,
    LogProbability,
    Option,
    Progress,
    Shown,
    Versus,
    read_group,
    verb,
)
from ffnprobe.errors import OptionRefused
from ffnprobe.interventions.estimates import Estimates, estimate_question
from ffnprobe.interventions.patching import LayerMap, table_map
from ffnprobe.interventions.question import (
    Counterfactual,
    Neurons,
    Positions,
    Replace,
    ask,
    choose_neurons,
    choose_positions,
    choose_top,
    split_positions,
)
from ffnprobe.interventions.replay import AnswerValues, Readout
from ffnprobe.interventions.sweeps import (
    mark_sets,
    sweep_changes,
    sweep_layers,
    sweep_neurons,
    sweep_sets,
)
from ffnprobe.names import NeuronId, Site, split_position
from ffnprobe.provenance import Provenance
from ffnprobe.reading.neuron_tables import list_top
from ffnprobe.results import Result, name_question, name_settings
from ffnprobe.tracing.contrast import Contrast, Prompts
from ffnprobe.tracing.trace import Trace

# One group of neurons, or several.
Groups = Iterable[str | NeuronId] | Iterable[Neurons]


class EffectResult(Result):
    """A result that says what an answer loses without neurons."""

    @property
    def title(self) -> str:
        """Say which answer, after what."""
        return f"effects on {name_question(self.provenance)}"

    @property
    def caption(self) -> str:
        """How to read the table."""
        meaning = "effect: what the answer loses when the neurons are removed, in logits"
        return f"{meaning}; {name_settings(self.provenance)}"


@dataclass(frozen=True, eq=False, repr=False)
class GroupEffects(EffectResult):
    """What the answer loses without each group of neurons, all of a group removed together.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> len(fp.ablate(trace, " basketball", together=[["L0N1", "L1N2"], ["L0"]]).table)
    2
    """

    groups: tuple[str, ...]
    values: Float[Tensor, " group"]
    log_probability: Float[Tensor, " group"] | None
    clean: AnswerValues
    provenance: Provenance

    @property
    def table(self) -> pd.DataFrame:
        """Every group, in the order given."""
        frame = pd.DataFrame({"group": self.groups, "effect": self.values.double().numpy()})
        if self.log_probability is not None:
            frame["log_probability_effect"] = self.log_probability.double().numpy()
        return self.provenance.note(frame)

    def tables(self, top: int | None = None) -> dict[str, pd.DataFrame]:
        """Name the table a file of these effects holds: all groups, or the first."""
        return {"groups": self.table if top is None else self.table.head(top)}

    @property
    def notes(self) -> tuple[str, ...]:
        """Say what the answer's logit is before anything is removed."""
        return (_describe_clean(self.clean, self.provenance),)


@dataclass(frozen=True, eq=False, repr=False)
class Effects(EffectResult):
    """What the answer loses without each neuron, in logits and in nats; NaN where none was asked.

    `log_probability` is None with `versus` (the difference is the logits') or if it was left out.
    `activations` are at the position; over several positions, their mean.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> effects = fp.ablate(trace, " basketball", position=2, neurons=["L1N505", "L4N669"])
    >>> effects.top(1).name.item(), effects.against(1).name.item()
    ('L1N505', 'L4N669')
    """

    trace: Trace
    values: Float[Tensor, "layer neuron"]
    log_probability: Float[Tensor, "layer neuron"] | None
    activations: Float[Tensor, "layer neuron"]
    positions: tuple[int, ...]
    clean: AnswerValues
    provenance: Provenance
    elsewhere: str = ""
    estimates: Estimates | None = None

    @property
    def table(self) -> pd.DataFrame:
        """The ten neurons whose removal costs the answer most."""
        return self.tables()["effects"]

    def tables(self, top: Shown = None) -> dict[str, pd.DataFrame]:
        """Name the table a file of these effects holds."""
        asked = int((~self.values.isnan()).sum())
        return {"effects": self.top(choose_top(top, asked, is_all=asked == self.values.numel()))}

    @property
    def headline(self) -> str:
        """The title, and where else neurons are estimated to help more."""
        return f"{self.title}; {self.elsewhere}" if self.elsewhere else self.title

    @property
    def notes(self) -> tuple[str, ...]:
        """Say what the answer's logit is before anything is removed, and how well estimates agree."""
        clean = _describe_clean(self.clean, self.provenance)
        if self.estimates is None:
            return (clean,)
        agreement = self.estimates.agreement(self)
        return clean, f"Spearman correlation of estimates and effects: {agreement:.3f}"

    def top(self, top: int | None = 10) -> pd.DataFrame:
        """Table the `top` neurons whose removal costs the answer most.

        Tokens are the five that open the question most and the five the neuron promoted here: its
        answer's, by the activation's sign.
        """
        return self._list(top, smallest=False)

    def against(self, top: int | None = 10) -> pd.DataFrame:
        """Table the `top` neurons whose removal helps the answer most."""
        return self._list(top, smallest=True)

    def _list(self, k: int | None, *, smallest: bool) -> pd.DataFrame:
        columns = {"activation": self.activations, "effect": self.values}
        if self.estimates is not None:
            columns["estimate"] = self.estimates.over(self.positions)
        if self.log_probability is not None:
            columns["log_probability_effect"] = self.log_probability
        listed = list_top(
            self.trace.model, k, by=self.values, columns=columns, signs=self.activations,
            smallest=smallest,
        )  # fmt: skip
        return self.provenance.note(listed)


@dataclass(frozen=True, eq=False, repr=False)
class LayerEffects(LayerMap, EffectResult):
    """What the answer loses without each MLP layer's neurons at each of some positions.

    `tokens` are those at the positions.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> fp.ablate_layers(trace, " basketball").table.columns.tolist()[:4]
    ['layer', 'position', 'token', 'effect']
    """

    values: Float[Tensor, "layer pos"]
    log_probability: Float[Tensor, "layer pos"] | None
    positions: tuple[int, ...]
    tokens: tuple[str, ...]
    clean: AnswerValues
    provenance: Provenance

    @property
    def table(self) -> pd.DataFrame:
        """Every layer and position, in order."""
        columns = {"effect": self.values}
        if self.log_probability is not None:
            columns["log_probability_effect"] = self.log_probability
        return self.provenance.note(table_map(columns, {"token": self.tokens}, self.positions))


@overload
def ablate(
    trace: Trace,
    answer: Answer = None,
    *,
    versus: Versus = None,
    replace: Replace | None = None,
    contrast: Contrast | Prompts | None = None,
    position: Positions = -1,
    neurons: Neurons | None = None,
    together: None = None,
    log_probability: LogProbability = True,
    estimates: bool = False,
    convention: Convention = "centred",
    progress: Progress | None = None,
) -> Effects: ...
@overload
def ablate(
    trace: Trace,
    answer: Answer = None,
    *,
    together: Groups,
    versus: Versus = None,
    replace: Replace | None = None,
    contrast: Contrast | Prompts | None = None,
    position: Positions = -1,
    log_probability: LogProbability = True,
    convention: Convention = "centred",
) -> GroupEffects: ...
@verb
@torch.no_grad()
def ablate(
    trace: Trace,
    answer: Answer = None,
    *,
    versus: Versus = None,
    replace: Annotated[Replace | None, REPLACE] = None,
    contrast: Annotated[Contrast | Prompts | None, CONTRAST] = None,
    position: Annotated[Positions, POSITIONS] = -1,
    neurons: Annotated[Neurons | None, NEURONS] = None,
    together: Annotated[
        Groups | None,
        Option(
            "Ablate these neurons at once: L3N1,L3N5 or L3N1@2,L3N5@6.",
            list[list[str]] | None, metavar="NEURON,…", longest=100, read=read_group,
        ),
    ] = None,
    log_probability: LogProbability = True,
    estimates: Annotated[
        bool, Option("Also show the gradient estimate of each effect, and how well they agree.")
    ] = False,
    convention: Convention = "centred",
    progress: Progress | None = None,
) -> Effects | GroupEffects:  # fmt: skip
    """Ablate each neuron in turn and measure what the answer loses (positive: it helped).

    At several positions (or "all": every one of the prompt, BOS included) a neuron is removed at all
    of them together. An answer of several tokens is teacher-forced and its pieces summed; at the
    pieces' own positions nothing is removed. With `contrast` (prompts about other subjects, or rows of
    facts) a neuron is set to its mean over them: what is lost is owed to the subject. The log-probability
    needs the whole vocabulary for each neuron that moves the prediction far; it can be left out.

    With `together`, the neurons of a group are removed at once: a list of names is one group, a list
    of lists several. This returns a `GroupEffects`. A name may carry its position: `L1N505@2`.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> effects = fp.ablate(trace, " basketball", position=2, neurons=["L1N505"])
    >>> round(effects.top(1).effect.item(), 2)
    2.27
    >>> fp.ablate(trace, " basketball", together=["L1N505", "L3N361"]).table.group.tolist()
    ['L1N505 L3N361']
    """
    if together is not None and neurons is not None:
        raise OptionRefused(
            "neurons are removed one at a time, those of together at once.",
            remedy="name them in one of the two",
        )
    groups = None if together is None else _read_groups(together)
    is_usual = neurons is None and isinstance(position, int) and position == -1
    neurons, position = split_positions(neurons, position)
    positions = choose_positions(trace, position)
    chosen = choose_neurons(trace.model, neurons)
    question = ask(
        trace, answer, versus=versus, replace=replace, contrast=contrast, convention=convention
    )
    readout = question.read(log_probability=log_probability)
    clean, provenance = readout.clean(), question.provenance(positions=positions)
    if groups is not None:
        together_effects = _remove_groups(question, readout, groups, positions)
        return GroupEffects(tuple(map(" ".join, groups)), *together_effects, clean, provenance)
    effects = sweep_neurons(
        readout, question.replacement, positions=positions, chosen=chosen, progress=progress
    )
    estimated = estimate_question(question) if is_usual or estimates else None
    elsewhere = estimated.describe_elsewhere(positions) if estimated and is_usual else ""
    activations = trace.activations[:, positions].mean(dim=1)
    shown = estimated if estimates else None
    return Effects(
        trace, *effects, activations, tuple(positions), clean, provenance, elsewhere, shown
    )


def _read_groups(together: Groups) -> list[list[str]]:
    """Return groups of names: of one group, or of several."""
    groups = [together] if isinstance(together, str) else list(together)
    if groups and all(isinstance(name, str | NeuronId) for name in groups):
        return [list(map(str, groups))]
    if not all(hasattr(group, "__iter__") for group in groups):
        raise OptionRefused("together takes lists of neurons.", remedy='["L3N12", "L4N7"]')
    if not groups:
        raise OptionRefused("there is no group of neurons to remove.", remedy='["L3N12", "L4N7"]')
    return [list(map(str, group)) for group in groups]  # type: ignore[arg-type]


def _remove_groups(
    question: Counterfactual,
    readout: Readout,
    groups: Sequence[Sequence[str]],
    positions: Sequence[int],
) -> AnswerValues:
    """Remove all neurons of a group at once, each at the position its name carries, or at those given."""
    model, trace = question.trace.model, readout.replay.trace
    if not any("@" in name for group in groups for name in group):
        masks = torch.stack([choose_neurons(model, group) for group in groups])
        sets = mark_sets(trace, masks, positions)
        return sweep_sets(readout, question.replacement, sets, start=positions[0])
    changes = []
    for group in groups:
        sites: dict[Site, None] = {}
        for name, at in map(split_position, group):
            places = positions if at is None else [question.trace.at(at)]
            sites |= dict.fromkeys(product(model.find_neurons(name), places))
        changes.append([question.change(site) for site in sites])
    return sweep_changes(readout, changes)


def _describe_clean(clean: AnswerValues, provenance: Provenance) -> str:
    """Write the answer's logit and probability before ablation."""
    than = "" if provenance.versus is None else f" above {provenance.versus}"
    log = clean.log_probability
    probability = "" if log is None else f", probability {math.exp(float(log)):.4g}"
    # Without a rival, a centred logit is not the one that the model gives.
    mean = " above the vocabulary's mean" if not than and provenance.convention == "centred" else ""
    return f"{provenance.answer}: logit {float(clean.logit):.3f}{than}{mean}{probability}"


@verb
@torch.no_grad()
def ablate_layers(
    trace: Trace,
    answer: Answer = None,
    *,
    versus: Versus = None,
    replace: Annotated[Replace | None, REPLACE] = None,
    contrast: Annotated[Contrast | Prompts | None, CONTRAST] = None,
    log_probability: LogProbability = True,
    convention: Convention = "centred",
    progress: Progress | None = None,
) -> LayerEffects:
    """Ablate whole MLP layers, position by position, and measure what the answer loses.

    The layer's bias b_out belongs to no neuron and stays.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> fp.ablate_layers(trace, " basketball").values.shape == (trace.model.config.layers, 7)
    True
    """
    question = ask(
        trace, answer, versus=versus, replace=replace, contrast=contrast, convention=convention
    )
    return map_layers(question, log_probability=log_probability, progress=progress)


def map_layers(
    question: Counterfactual,
    *,
    positions: Sequence[int] | None = None,
    log_probability: bool = False,
    progress: Progress | None = None,
) -> LayerEffects:
    """Remove every MLP layer at positions, by default all."""
    trace, readout = question.trace, question.read(log_probability=log_probability)
    chosen = tuple(positions or range(len(trace)))
    clean = readout.clean()
    effects = sweep_layers(readout, question.replacement, positions=chosen, progress=progress)
    tokens = tuple(trace.tokens[position] for position in chosen)
    return LayerEffects(*effects, chosen, tokens, clean, question.provenance())

"""Remove neurons and see what the answer loses: the total effect, exact, for every neuron.

    effect = the answer's logit on the clean prompt − its logit with the neuron removed

So a neuron that helps the answer has a positive effect, as it has a positive push; the effect counts
what later layers make of it, the push does not. To remove is to set the activation to its mean over
the model's corpus (the default where that is known), to zero, to its mean over another corpus, to
given values, or, with `contrast`, to its mean over the same sentence about other subjects. Zero is not neutral: most neurons rest a little below it. Effects are `centred`, above
the vocabulary's mean, as pushes are.

Limits: an effect is of one neuron with all others free to react; effects do not add up. Arithmetic is
in fp32: to put a neuron's own activation back has the effect 0 (at most 1e-6 logits where d_model or
d_mlp is not a multiple of 16), and the sign of an effect below 1e-6 logits means nothing.

>>> import ffnprobe as fp
>>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
>>> effects = fp.ablate(trace, " basketball", neurons=["L5"])
>>> list(effects.top(1).columns)[:6]
['name', 'layer', 'neuron', 'activation', 'effect', 'log_probability_effect']
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, overload

import torch
from einops import rearrange
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
from ffnprobe.interventions.layer_effects import LayerMap, spread, table_map
from ffnprobe.interventions.question import (
    Neurons,
    Positions,
    Question,
    Replace,
    ask,
    choose_neurons,
    choose_positions,
    split_positions,
)
from ffnprobe.interventions.replay import AnswerValues
from ffnprobe.interventions.sweeps import (
    Change,
    join_values,
    mark_sets,
    sweep_changes,
    sweep_layers,
    sweep_neurons,
    sweep_sets,
)
from ffnprobe.names import NeuronId, split_position
from ffnprobe.provenance import Provenance
from ffnprobe.reading.neuron_tables import list_top
from ffnprobe.results import Result, name_question, name_settings
from ffnprobe.tracing.contrast import Contrast, Prompts
from ffnprobe.tracing.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

    from ffnprobe.interventions.estimates import Estimates


# MERGED: ffnprobe.interventions.group_ablation
# Remove several neurons at once, and measure what the answer loses: group ablation, exact, by replay.


MEANING = "effect: what the answer loses when the neurons are removed, in logits"
# One group of neurons, or several.
Groups = Iterable[str | NeuronId] | Iterable[Neurons]


@dataclass(frozen=True, eq=False, repr=False)
class GroupEffects(Result):
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
    def title(self) -> str:
        """Say which answer, after what."""
        return f"effects on {name_question(self.provenance)}"

    @property
    def caption(self) -> str:
        """How to read the table."""
        return f"{MEANING}; {name_settings(self.provenance)}"

    @property
    def table(self) -> "pd.DataFrame":
        """Every group, in the order given."""
        import pandas as pd

        frame = pd.DataFrame({"group": self.groups, "effect": self.values.double().numpy()})
        if self.log_probability is not None:
            frame["log_probability_effect"] = self.log_probability.double().numpy()
        return self.provenance.note(frame)

    def tables(self, top: int | None = None) -> "dict[str, pd.DataFrame]":
        """Name the table a file of these effects holds: all groups, or the first."""
        return {"groups": self.table if top is None else self.table.head(top)}

    @property
    def notes(self) -> tuple[str, ...]:
        """Say what the answer's logit is before anything is removed."""
        return (describe_clean(self.clean, self.provenance),)


def describe_clean(clean: AnswerValues, known: Provenance) -> str:
    """Write the answer's logit and probability before ablation."""
    than = "" if known.versus is None else f" above {known.versus}"
    chance = clean.log_probability
    probability = "" if chance is None else f", probability {math.exp(float(chance)):.4g}"
    # Without a rival, a centred logit is not the one that the model gives.
    mean = " above the vocabulary's mean" if not than and known.convention == "centred" else ""
    return f"{known.answer}: logit {float(clean.logit):.3f}{than}{mean}{probability}"


def read_groups(together: Groups) -> list[list[str]]:
    """Return groups of names: of one group, or of several."""
    given = [together] if isinstance(together, str) else list(together)
    if given and all(isinstance(each, str | NeuronId) for each in given):
        return [[str(each) for each in given]]
    if not all(hasattr(group, "__iter__") for group in given):
        raise OptionRefused("together takes lists of neurons.", remedy='["L3N12", "L4N7"]')
    return [[str(each) for each in group] for group in given]  # type: ignore[union-attr]


@torch.no_grad()
def ablate_together(
    trace: Trace,
    answer: str | int | None,
    groups: Sequence[Sequence[str]],
    *,
    versus: str | int | None = None,
    replace: Replace | None = None,
    contrast: Contrast | Prompts | None = None,
    position: Positions = -1,
    log_probability: bool = True,
    convention: str = "centred",
) -> GroupEffects:
    """Find the exact effect of removing all neurons of a group at once, for one or more groups."""
    if not groups:
        raise OptionRefused("there is no group of neurons to remove.", remedy='["L3N12", "L4N7"]')
    positions = choose_positions(trace, position)
    question = ask(
        trace, answer, versus=versus, replace=replace, contrast=contrast, convention=convention
    )
    readout = question.read(log_probability=log_probability)
    clean = readout.clean()
    if any("@" in name for group in groups for name in group):
        changes = [_list_changes(question, group, positions) for group in groups]
        found = sweep_changes(readout, changes)
    else:
        masks = torch.stack([choose_neurons(trace.model, group) for group in groups])
        sets = mark_sets(readout.replay.trace, masks, positions)
        found = sweep_sets(readout, question.replacement, sets, start=positions[0])
    return GroupEffects(
        groups=tuple(" ".join(group) for group in groups),
        values=found.logit,
        log_probability=found.log_probability,
        clean=clean,
        provenance=question.provenance(positions=positions),
    )


def _list_changes(
    question: Question, group: Sequence[str], positions: Sequence[int]
) -> list[Change]:
    """List the changes that remove a group, each neuron at the position its name carries, or at those given."""
    found: dict[tuple[NeuronId, int], Change] = {}
    for text in group:
        name, at = split_position(text)
        for each in question.trace.model.find_neurons(name):
            for position in positions if at is None else [question.trace.at(at)]:
                found[each, position] = question.change((each, position))
    return list(found.values())


@dataclass(frozen=True, eq=False, repr=False)
class Effects(Result):
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
    estimates: "Estimates | None" = None

    @property
    def title(self) -> str:
        """Say which answer, after what."""
        return f"effects on {name_question(self.provenance)}"

    @property
    def caption(self) -> str:
        """How to read the table."""
        return f"{MEANING}; {name_settings(self.provenance)}"

    @property
    def _asked(self) -> int:
        return int((~self.values.isnan()).sum())

    @property
    def table(self) -> "pd.DataFrame":
        """The ten neurons whose removal costs the answer most."""
        return self.top(min(10, self._asked))

    def tables(self, top: Shown = None) -> "dict[str, pd.DataFrame]":
        """Name the table a file of these effects holds."""
        if top is not None and self._asked < self.values.numel():
            top = min(top, self._asked)  # who names two neurons wants those two
        return {"effects": self.table if top is None else self.top(top)}

    @property
    def headline(self) -> str:
        """The title, and where else neurons are estimated to help more."""
        return f"{self.title}; {self.elsewhere}" if self.elsewhere else self.title

    @property
    def notes(self) -> tuple[str, ...]:
        """Say what the answer's logit is before anything is removed, and how well estimates agree."""
        said = describe_clean(self.clean, self.provenance)
        if self.estimates is None:
            return (said,)
        agreement = self.estimates.agreement(self)
        return said, f"Spearman correlation of estimates and effects: {agreement:.3f}"

    def top(self, top: int | None = 10) -> "pd.DataFrame":
        """Table the `top` neurons whose removal costs the answer most.

        Tokens are the five that open the question most and the five the neuron promoted here: its
        answer's, by the activation's sign.
        """
        return self._list(top, smallest=False)

    def against(self, top: int | None = 10) -> "pd.DataFrame":
        """Table the `top` neurons whose removal helps the answer most."""
        return self._list(top, smallest=True)

    def _list(self, k: int | None, *, smallest: bool) -> "pd.DataFrame":
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


@overload
def ablate(
    trace: Trace,
    answer: Answer = None,
    *,
    versus: Versus = None,
    replace: Annotated[Replace | None, REPLACE] = None,
    contrast: Annotated[Contrast | Prompts | None, CONTRAST] = None,
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
    needs the whole vocabulary for each neuron that moves the prediction far (`log_sums`); it can be left out.

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
    if together is not None:
        if neurons is not None:
            raise OptionRefused(
                "neurons are removed one at a time, those of together at once.",
                remedy="name them in one of the two",
            )
        return ablate_together(
            trace, answer, read_groups(together), versus=versus, replace=replace,
            contrast=contrast, position=position, log_probability=log_probability,
            convention=convention,
        )  # fmt: skip
    neurons, position = split_positions(neurons, position)
    positions = choose_positions(trace, position)
    chosen = choose_neurons(trace.model, neurons)
    question = ask(
        trace, answer, versus=versus, replace=replace, contrast=contrast, convention=convention
    )
    readout = question.read(log_probability=log_probability)
    clean, provenance = readout.clean(), question.provenance(positions=positions)
    found = join_values(
        list(
            sweep_neurons(
                readout, question.replacement, positions=positions, chosen=chosen, progress=progress
            )
        )
    )
    logs, is_plain = (
        found.log_probability,
        neurons is None and isinstance(position, int) and position == -1,
    )
    known = _estimate(question) if is_plain or estimates else None
    return Effects(
        trace=trace,
        values=spread(chosen, found.logit),
        log_probability=None if logs is None else spread(chosen, logs),
        activations=trace.activations[:, positions].mean(dim=1),
        positions=tuple(positions),
        clean=clean,
        provenance=provenance,
        elsewhere="" if known is None or not is_plain else known.describe_elsewhere(positions),
        estimates=known if estimates else None,
    )


def _estimate(question: Question) -> "Estimates":
    from ffnprobe.interventions.estimates import estimate_question

    return estimate_question(question)


@dataclass(frozen=True, eq=False, repr=False)
class LayerEffects(LayerMap):
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
    def title(self) -> str:
        """Say which answer, after what."""
        return f"effects on {name_question(self.provenance)}"

    @property
    def caption(self) -> str:
        """How to read the table."""
        return f"{MEANING}; {name_settings(self.provenance)}"

    @property
    def table(self) -> "pd.DataFrame":
        """Every layer and position, in order."""
        columns = {"effect": self.values}
        if self.log_probability is not None:
            columns["log_probability_effect"] = self.log_probability
        return self.provenance.note(table_map(columns, {"token": self.tokens}, self.positions))

    def tables(self) -> "dict[str, pd.DataFrame]":
        """Name the table a file of these effects holds."""
        return {"map": self.table}


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
    question: Question,
    *,
    positions: Sequence[int] | None = None,
    log_probability: bool = False,
    progress: Progress | None = None,
) -> LayerEffects:
    """Remove every MLP layer at positions, by default all."""
    trace, readout = question.trace, question.read(log_probability=log_probability)
    chosen = tuple(positions or range(len(trace)))
    clean = readout.clean()
    found = sweep_layers(readout, question.replacement, positions=chosen, progress=progress)
    pattern, layers = "(layer pos) -> layer pos", trace.model.config.layers
    logs = found.log_probability
    return LayerEffects(
        values=rearrange(found.logit, pattern, layer=layers),
        log_probability=None if logs is None else rearrange(logs, pattern, layer=layers),
        positions=chosen,
        tokens=tuple(trace.tokens[position] for position in chosen),
        clean=clean,
        provenance=question.provenance(),
    )

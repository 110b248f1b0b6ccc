"""Remove several neurons at once, and measure what the answer loses: group ablation, exact, by replay."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.errors import OptionRefused
from ffnprobe.interventions.choices import (
    Neurons,
    Positions,
    Replace,
    choose_neurons,
    choose_positions,
)
from ffnprobe.interventions.question import Question, ask
from ffnprobe.interventions.readout import AnswerValues
from ffnprobe.interventions.sweeps import Change, mark_sets, sweep_changes, sweep_sets
from ffnprobe.names import NeuronId, split_position
from ffnprobe.provenance import Provenance
from ffnprobe.results import Result, name_question, name_settings
from ffnprobe.tracing.contrast import Contrast, Prompts
from ffnprobe.tracing.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

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

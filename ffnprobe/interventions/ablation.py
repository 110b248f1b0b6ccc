"""Remove neurons and see what the answer loses: the total effect, exact, for every neuron.

    effect = the answer's logit on the clean prompt − its logit with the neuron removed

So a neuron that helps the answer has a positive effect, as it has a positive push; the effect counts
what later layers make of it, the push does not. To remove is to set the activation to zero, to its
mean over a corpus, or to a given value. Zero is not neutral: most neurons rest a little below it.

Limits: an effect is of one neuron with all others free to react; effects do not add up. Arithmetic is
in fp32: to put a neuron's own activation back has the effect 0 (at most 1e-6 logits where d_model or
d_mlp is not a multiple of 16), and the sign of an effect below 1e-6 logits means nothing.

>>> import ffnprobe as fp
>>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
>>> effects = fp.ablate(trace, " basketball", neurons=["L5"], replace="mean")
>>> list(effects.top(1).columns)[:6]
['name', 'layer', 'neuron', 'activation', 'effect', 'log_probability_effect']
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from ffnprobe.errors import OptionRefused
from ffnprobe.interventions.choices import (
    Neurons,
    Positions,
    Replace,
    choose_neurons,
    choose_positions,
    choose_replacement,
    name_replacement,
)
from ffnprobe.interventions.readout import Standing, read_answer
from ffnprobe.interventions.sweeps import Progress, sweep_groups, sweep_layers, sweep_neurons
from ffnprobe.interventions.tables import name_question, show_html, spread, table_map, table_neurons
from ffnprobe.models.provenance import Provenance
from ffnprobe.tracing.trace import Trace

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Effects:
    """What the answer loses without each neuron, in logits and in nats; NaN where none was asked.

    `log_probability` is None with `versus` (the difference is the logits') or if it was left out.
    `activations` are at the position; over several positions, their mean.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> effects = fp.ablate(trace, " basketball", neurons=["L0N378", "L0N31"])
    >>> effects.top(1).name.item(), effects.against(1).name.item()
    ('L0N378', 'L0N31')
    """

    trace: Trace
    values: Float[Tensor, "layer neuron"]
    log_probability: Float[Tensor, "layer neuron"] | None
    activations: Float[Tensor, "layer neuron"]
    positions: tuple[int, ...]
    clean: Standing
    provenance: Provenance

    def __repr__(self) -> str:
        return f"Effects({name_question(self.provenance)})"

    def _repr_html_(self) -> str:
        title = f"effects on {name_question(self.provenance)}"
        return show_html(title, self.top(min(8, self._asked)))

    @property
    def _asked(self) -> int:
        return int((~self.values.isnan()).sum())

    def tables(self) -> "dict[str, pd.DataFrame]":
        """Name the table a file of these effects holds: the ten that cost most."""
        return {"effects": self.top(min(10, self._asked))}

    def top(self, k: int = 10) -> "pd.DataFrame":
        """Table the k neurons whose removal costs the answer most.

        Tokens are the five that open the question most and the five the neuron promoted here: its
        answer's, by the activation's sign.
        """
        return self._list(k, smallest=False)

    def against(self, k: int = 10) -> "pd.DataFrame":
        """Table the k neurons whose removal helps the answer most."""
        return self._list(k, smallest=True)

    def _list(self, k: int, *, smallest: bool) -> "pd.DataFrame":
        columns = {"activation": self.activations, "effect": self.values}
        if self.log_probability is not None:
            columns["log_probability_effect"] = self.log_probability
        listed = table_neurons(
            self.trace.model, k, by=self.values, columns=columns, signs=self.activations,
            smallest=smallest,
        )  # fmt: skip
        return self.provenance.note(listed)


@torch.no_grad()
def ablate(
    trace: Trace,
    answer: str | int,
    *,
    versus: str | int | None = None,
    replace: Replace = "zero",
    position: Positions = -1,
    neurons: Neurons | None = None,
    log_probability: bool = True,
    convention: str = "folded",
    progress: Progress | None = None,
) -> Effects:
    """Find the exact effect of removing each neuron, by itself, on an answer.

    At several positions (or "all": every one of the prompt, BOS included) a neuron is removed at all
    of them together. An answer of several tokens is teacher-forced and its pieces summed; at the
    pieces' own positions nothing is removed. The log-probability needs the
    whole vocabulary for each neuron: in GPT-2 small about half of the time; it can be left out.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> effects = fp.ablate(trace, " basketball", neurons=["L0N378"], replace="mean")
    >>> round(effects.top(1).effect.item(), 2)
    0.27
    """
    places = choose_positions(trace, position)
    chosen = choose_neurons(trace.model, neurons)
    replacement = choose_replacement(trace.model, replace)
    readout = read_answer(
        trace, answer, versus=versus, log_probability=log_probability, convention=convention
    )
    clean = readout.clean()
    found = sweep_neurons(readout, replacement, positions=places, chosen=chosen, progress=progress)
    logs = found.log_probability
    return Effects(
        trace=trace,
        values=spread(chosen, found.logit),
        log_probability=None if logs is None else spread(chosen, logs),
        activations=trace.activations[:, places].mean(dim=1),
        positions=tuple(places),
        clean=clean,
        provenance=readout.provenance(trace, settings=name_replacement(replace), positions=places),
    )


@dataclass(frozen=True, eq=False)
class LayerEffects:
    """What the answer loses without each MLP layer's neurons at each position of the prompt."""

    values: Float[Tensor, "layer pos"]
    log_probability: Float[Tensor, "layer pos"] | None
    tokens: tuple[str, ...]
    clean: Standing
    provenance: Provenance

    def __repr__(self) -> str:
        return f"LayerEffects({name_question(self.provenance)})"

    def _repr_html_(self) -> str:
        return show_html(f"effects on {name_question(self.provenance)}", self.table())

    def table(self) -> "pd.DataFrame":
        """Table every layer and position, in order."""
        columns = {"effect": self.values}
        if self.log_probability is not None:
            columns["log_probability_effect"] = self.log_probability
        return self.provenance.note(table_map(columns, {"token": self.tokens}))

    def tables(self) -> "dict[str, pd.DataFrame]":
        """Name the table a file of these effects holds."""
        return {"map": self.table()}


@torch.no_grad()
def ablate_layers(
    trace: Trace,
    answer: str | int,
    *,
    versus: str | int | None = None,
    replace: Replace = "zero",
    log_probability: bool = True,
    convention: str = "folded",
    progress: Progress | None = None,
) -> LayerEffects:
    """Find the exact effect of removing all neurons of a layer at one position: a map of both.

    The layer's bias b_out is no neuron's and stays.
    """
    replacement = choose_replacement(trace.model, replace)
    readout = read_answer(
        trace, answer, versus=versus, log_probability=log_probability, convention=convention
    )
    clean = readout.clean()
    found = sweep_layers(readout, replacement, progress=progress)
    pattern, layers = "(layer pos) -> layer pos", trace.model.config.layers
    logs = found.log_probability
    return LayerEffects(
        values=rearrange(found.logit, pattern, layer=layers),
        log_probability=None if logs is None else rearrange(logs, pattern, layer=layers),
        tokens=trace.tokens,
        clean=clean,
        provenance=readout.provenance(trace, settings=name_replacement(replace)),
    )


@dataclass(frozen=True, eq=False)
class GroupEffects:
    """What the answer loses without each group of neurons, all of a group removed together."""

    values: Float[Tensor, " group"]
    log_probability: Float[Tensor, " group"] | None
    clean: Standing
    provenance: Provenance

    def __repr__(self) -> str:
        return f"GroupEffects({name_question(self.provenance)})"

    def _repr_html_(self) -> str:
        return show_html(f"effects on {name_question(self.provenance)}", self.table())

    def table(self) -> "pd.DataFrame":
        """Table every group, in the order given."""
        import pandas as pd

        frame = pd.DataFrame(
            {"group": range(len(self.values)), "effect": self.values.double().numpy()}
        )
        if self.log_probability is not None:
            frame["log_probability_effect"] = self.log_probability.double().numpy()
        return self.provenance.note(frame)

    def tables(self) -> "dict[str, pd.DataFrame]":
        """Name the table a file of these effects holds."""
        return {"groups": self.table()}


@torch.no_grad()
def ablate_together(
    trace: Trace,
    answer: str | int,
    groups: Sequence[Neurons],
    *,
    versus: str | int | None = None,
    replace: Replace = "zero",
    position: Positions = -1,
    convention: str = "folded",
) -> GroupEffects:
    """Find the exact effect of removing several neurons at once, for one or more groups of them."""
    if not groups:
        raise OptionRefused("there is no group of neurons to remove.", remedy='[["L3N12", "L4N7"]]')
    places = choose_positions(trace, position)
    masks = torch.stack([choose_neurons(trace.model, group) for group in groups])
    replacement = choose_replacement(trace.model, replace)
    readout = read_answer(trace, answer, versus=versus, convention=convention)
    clean = readout.clean()
    found = sweep_groups(readout, replacement, positions=places, groups=masks)
    return GroupEffects(
        values=found.logit,
        log_probability=found.log_probability,
        clean=clean,
        provenance=readout.provenance(trace, settings=name_replacement(replace), positions=places),
    )

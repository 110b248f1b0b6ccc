"""A fast first look at effects: activation × gradient, for all neurons and positions at once.

    estimate = (a − r) · ∂ logit / ∂ a        a: activation, r: what would replace it

One replay of the prompt and one backward pass. It is an estimate of the effect, to first order in
the change: good where the neuron's removal is a small step, wrong in size and even in sign where
later layers saturate. `agreement` says how far its ranking is that of exact effects.

>>> import ffnprobe as fp
>>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
>>> estimates = fp.estimate(trace, " basketball")
>>> -1 <= estimates.agreement(fp.ablate(trace, " basketball", neurons=["L4-L5"])) <= 1
True
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NamedTuple

import torch
from einops import reduce
from jaxtyping import Float
from torch import Tensor

from ffnprobe.arguments import (
    CONTRAST,
    NEURONS,
    POSITIONS,
    REPLACE,
    Answer,
    Convention,
    Shown,
    Versus,
    verb,
)
from ffnprobe.interventions.ablation import Effects
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
from ffnprobe.interventions.replay import Readout
from ffnprobe.interventions.sweeps import Change, set_activations
from ffnprobe.provenance import Provenance
from ffnprobe.reading.neuron_tables import list_top
from ffnprobe.results import Result, check_alike, name_question, name_settings
from ffnprobe.tracing.contrast import Contrast, Prompts
from ffnprobe.tracing.trace import Trace, find_sinks

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class Estimates(Result):
    """An estimate of every neuron's effect at every position, in logits: not the effect itself.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> fp.estimate(trace, " basketball").top(2, position=2).columns.tolist()[3:5]
    ['activation', 'estimate']
    """

    trace: Trace
    values: Float[Tensor, "layer pos neuron"]
    provenance: Provenance

    @property
    def title(self) -> str:
        """Say which answer, after what."""
        return f"estimates for {name_question(self.provenance)}"

    @property
    def caption(self) -> str:
        """How to read the table."""
        return f"an estimate of the effect, in logits; {name_settings(self.provenance)}"

    @property
    def table(self) -> "pd.DataFrame":
        """The ten neurons at the last position whose removal is estimated to cost most."""
        return self.top(min(10, self.trace.model.config.neurons))

    def over(self, positions: Sequence[int]) -> Float[Tensor, "layer neuron"]:
        """Estimate the effect of removing each neuron at all these positions."""
        return reduce(self.values[:, list(positions)], "layer pos neuron -> layer neuron", "sum")

    def top(
        self, top: int | None = 10, *, position: Positions = -1, neurons: Neurons | None = None
    ) -> "pd.DataFrame":
        """Table the `top` neurons (of those named) whose removal is estimated to cost the answer most."""
        positions = choose_positions(self.trace, position)
        chosen = choose_neurons(self.trace.model, neurons)
        values = self.over(positions).masked_fill(~chosen, float("nan"))
        activations = self.trace.activations[:, positions].mean(dim=1)
        columns = {"activation": activations, "estimate": values}
        listed = list_top(self.trace.model, top, by=values, columns=columns, signs=activations)
        return self.provenance.note(listed)

    def describe_elsewhere(self, positions: Sequence[int]) -> str:
        """Say at which other position neurons are estimated to help more; nothing where at none."""
        helping = reduce(self.values.clamp(min=0), "layer pos neuron -> pos", "sum")
        here = float(helping[list(positions)].max())
        helping[list(find_sinks(self.trace.activations))] = 0
        most = int(helping.argmax())
        if most in positions or float(helping[most]) <= here:
            return ""
        return f"by estimate neurons at {self.trace.tokens[most]} help more: position {most}"

    def tables(
        self,
        top: Shown = None,
        position: Annotated[Positions, POSITIONS] = -1,
        neurons: Annotated[Neurons | None, NEURONS] = None,
    ) -> "dict[str, pd.DataFrame]":
        """Name the table a file of these estimates holds."""
        named, position = split_positions(neurons, position)
        many = int(choose_neurons(self.trace.model, named).sum())
        k = min(10, many) if top is None else top if named is None else min(top, many)
        return {"estimates": self.top(k, position=position, neurons=named)}

    def agreement(self, effects: Effects) -> float:
        """Correlate the ranks (Spearman) with the exact effects of the same neurons and positions."""
        import pandas as pd

        check_alike(self.provenance, effects.provenance, among=("replace", "over", "contrast"))
        known = ~effects.values.isnan()
        both = {"estimate": self.over(effects.positions)[known], "effect": effects.values[known]}
        table = pd.DataFrame({name: values.numpy() for name, values in both.items()})
        return float(table.corr(method="spearman").to_numpy()[0, 1])


@verb
def estimate(
    trace: Trace,
    answer: Answer = None,
    *,
    versus: Versus = None,
    replace: Annotated[Replace | None, REPLACE] = None,
    contrast: Annotated[Contrast | Prompts | None, CONTRAST] = None,
    convention: Convention = "centred",
) -> Estimates:
    """Estimate each neuron's effect at each position by one backward pass (attribution patching).

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> fp.estimate(trace, " basketball").values.shape == trace.activations.shape
    True
    """
    question = ask(
        trace, answer, versus=versus, replace=replace, contrast=contrast, convention=convention
    )
    return estimate_question(question)


def estimate_question(question: Question) -> Estimates:
    """Estimate every neuron's effect on the answer that a question is about."""
    trace = question.trace
    slopes = measure_slopes(question.readout).logit[:, : len(trace)]
    return Estimates(
        trace=trace,
        values=question.gaps * slopes,
        provenance=question.provenance(settings={"method": "gradient"}),
    )


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
    replay, layers = readout.replay, readout.replay.model.config.layers
    own = replay.trace.activations
    nudges = replay.held(torch.zeros_like(own[:, start:])).requires_grad_()
    seen, found = own.clone(), {name: torch.zeros_like(own) for name in ("logit", "odds")}
    change = set_activations([changes], len(replay.trace))

    def nudge(layer: int, activations: Tensor) -> Tensor:
        # The edit's first variant is the clean one; here there is one variant, with its changes.
        edited = change(layer, activations.repeat(2, 1, 1))[1:] if changes else activations
        seen[layer, start:] = edited[0].detach().cpu()
        return edited + nudges[layer]

    with torch.enable_grad():
        stream = replay.entering(0, start=start)[None]
        final = replay.finish(stream, layer=0, start=start, edit=nudge)
        (logits,) = readout.logits(final, start=start)
        for number, name in enumerate(of):
            if name == "logit" or readout.versus is not None:
                value = readout.replayed(final, layer=layers, start=start).logit.sum()
            else:
                tokens = torch.tensor(readout.tokens, device=logits.device)[:, None]
                rest = logits.scatter(-1, tokens, float("-inf")).logsumexp(-1)
                value = (logits.gather(-1, tokens)[:, 0] - rest).sum()
            is_last = number == len(of) - 1
            (slopes,) = torch.autograd.grad(value, nudges, retain_graph=not is_last)
            found[name][:, start:] = slopes.cpu()
    if not changes and not start:
        readout.check(final.detach())
    return Gradients(**found, activations=seen, logits=logits.detach())

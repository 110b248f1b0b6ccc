"""A fast first look at effects: activation × gradient, for all neurons and positions at once.

    estimate = (a − r) · ∂ logit / ∂ a        a: activation, r: what would replace it

One replay of the prompt and one backward pass. It is an estimate of the effect, to first order in
the change: good where the neuron's removal is a small step, wrong in size and even in sign where
later layers saturate. `agreement` says how far its ranking is that of exact effects.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import pandas as pd
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
from ffnprobe.interventions.question import (
    Counterfactual,
    Neurons,
    Positions,
    Replace,
    ask,
    choose_neurons,
    choose_positions,
    choose_top,
    measure_slopes,
    split_positions,
)
from ffnprobe.provenance import Provenance
from ffnprobe.reading.neuron_tables import list_top
from ffnprobe.results import Result, check_alike, name_question, name_settings
from ffnprobe.tracing.contrast import Contrast, Prompts
from ffnprobe.tracing.trace import Trace, find_sinks

if TYPE_CHECKING:
    from ffnprobe.interventions.ablation import Effects


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
    def table(self) -> pd.DataFrame:
        """The ten neurons at the last position whose removal is estimated to cost most."""
        return self.tables()["estimates"]

    def over(self, positions: Sequence[int]) -> Float[Tensor, "layer neuron"]:
        """Estimate the effect of removing each neuron at all these positions."""
        return reduce(self.values[:, list(positions)], "layer pos neuron -> layer neuron", "sum")

    def top(
        self, top: int | None = 10, *, position: Positions = -1, neurons: Neurons | None = None
    ) -> pd.DataFrame:
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
    ) -> dict[str, pd.DataFrame]:
        """Name the table a file of these estimates holds."""
        named, position = split_positions(neurons, position)
        many = int(choose_neurons(self.trace.model, named).sum())
        rows = choose_top(top, many, is_all=named is None)
        return {"estimates": self.top(rows, position=position, neurons=named)}

    def agreement(self, effects: "Effects") -> float:
        """Correlate the ranks (Spearman) with the exact effects of the same neurons and positions."""
        check_alike(self.provenance, effects.provenance, among=("replace", "over", "contrast"))
        is_measured = ~effects.values.isnan()
        pairs = torch.stack([self.over(effects.positions), effects.values], dim=-1)[is_measured]
        return float(pd.DataFrame(pairs.numpy()).corr(method="spearman").to_numpy()[0, 1])


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


def estimate_question(question: Counterfactual) -> Estimates:
    """Estimate every neuron's effect on the answer that a question is about."""
    slopes = measure_slopes(question.readout).logit[:, : len(question.trace)]
    provenance = question.provenance(settings={"method": "gradient"})
    return Estimates(question.trace, question.gaps * slopes, provenance)

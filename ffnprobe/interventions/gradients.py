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
from typing import TYPE_CHECKING

import torch
from einops import reduce
from jaxtyping import Float
from torch import Tensor

from ffnprobe.arguments import verb
from ffnprobe.interventions.ablation import Effects
from ffnprobe.interventions.choices import (
    Neurons,
    Positions,
    Replace,
    choose_neurons,
    choose_positions,
)
from ffnprobe.interventions.effect_tables import table_neurons
from ffnprobe.interventions.readout import Readout, read_answer
from ffnprobe.interventions.removal import choose_removal
from ffnprobe.interventions.replay import Stream
from ffnprobe.models.provenance import Provenance
from ffnprobe.results import Result, check_alike, name_question, name_settings
from ffnprobe.tracing.contrast import Contrast, Prompts
from ffnprobe.tracing.trace import Trace

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
        listed = table_neurons(self.trace.model, top, by=values, columns=columns, signs=activations)
        return self.provenance.note(listed)

    def tables(self) -> "dict[str, pd.DataFrame]":
        """Name the table a file of these estimates holds."""
        return {"estimates": self.table}

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
    answer: str | int,
    *,
    versus: str | int | None = None,
    replace: Replace | None = None,
    contrast: Contrast | Prompts | None = None,
    convention: str = "centred",
) -> Estimates:
    """Attribution patching: estimate each neuron's effect at each position, by one backward pass.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> fp.estimate(trace, " basketball").values.shape == trace.activations.shape
    True
    """
    removal = choose_removal(trace, answer, replace=replace, contrast=contrast)
    readout = read_answer(
        trace, answer, versus=versus, log_probability=False, convention=convention
    )
    replay = readout.replay
    gaps = replay.trace.activations - removal.on(replay.trace)
    return Estimates(
        trace=trace,
        values=(gaps * measure_slopes(readout)[0])[:, : len(trace)],
        provenance=readout.provenance(trace, settings={"method": "gradient", **removal.settings()}),
    )


def measure_slopes(readout: Readout) -> tuple[Float[Tensor, "layer pos neuron"], Stream]:
    """Return the gradient of the answer's logit with respect to every activation.

    Also the stream that entered the final norm, by which the replay can be checked.
    """
    replay = readout.replay
    nudges = replay.held(torch.zeros_like(replay.trace.activations)).requires_grad_()

    def nudge(layer: int, activations: Tensor) -> Tensor:
        return activations + nudges[layer]

    with torch.enable_grad():
        stream = replay.entering(0, start=0)[None]
        final = replay.finish(stream, layer=0, start=0, edit=nudge)
        read = readout.replayed(final, layer=replay.model.config.layers, start=0)
        (slopes,) = torch.autograd.grad(read.logit.sum(), nudges)
    return slopes.cpu(), final.detach()

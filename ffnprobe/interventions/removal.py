"""What a removed neuron is set to: zero, a mean over a corpus, given values, or its contrast mean.

With contrast prompts (the same sentence about other subjects) a neuron is set to its mean over them at
the aligned position. What the answer then loses is owed to what the prompts differ in: where they
begin alike, and where a position has no counterpart, nothing is removed and the effect is 0.
"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from ffnprobe.errors import OptionRefused
from ffnprobe.interventions.choices import (
    Replace,
    choose_replacement,
    name_replacement,
    usual_replacement,
)
from ffnprobe.models.provenance import Setting
from ffnprobe.tracing.contrast import Contrast, Prompts, choose_contrast
from ffnprobe.tracing.trace import Trace


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


def choose_removal(
    trace: Trace,
    answer: str | int,
    *,
    replace: Replace | None = None,
    contrast: Contrast | Prompts | None = None,
) -> Removal:
    """Return what was asked for; by default the model's means where they are known, else zero."""
    chosen = choose_contrast(trace, answer, contrast)
    if chosen is None:
        return Removal(usual_replacement(trace.model, replace))
    if replace is not None:
        raise OptionRefused(
            "with contrast prompts a removed neuron is set to its mean over them, not to another value.",
            remedy="leave out replace, or contrast",
        )
    return Removal(chosen)

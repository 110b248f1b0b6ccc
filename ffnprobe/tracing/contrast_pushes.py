"""Pushes owed to the subject: each prompt's own account, the contrast prompts' mean taken away.

    contrast push of a part = its push here − the mean of its push over the contrast prompts

Over all parts the contrast pushes add up to the answer's logit here less its mean there. Direct pushes
are of the last position of each prompt.

>>> import ffnprobe as fp
>>> from ffnprobe.tracing.contrast import contrast_with
>>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
>>> contrast = contrast_with(trace, " basketball", ["Tiger Woods plays the sport of"])
>>> found = contrast_pushes(contrast, " basketball")
>>> float(abs(found.by_part().difference.sum() - found.difference)) < 1e-3
True
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.provenance import Provenance
from ffnprobe.reading.neuron_tables import list_top
from ffnprobe.results import Result
from ffnprobe.tracing.answers import one_token
from ffnprobe.tracing.contrast import Contrast, count_prompts
from ffnprobe.tracing.pushes import Pushes, attribute

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class ContrastPushes(Result):
    """Every part's push toward one answer here, and what it is above its mean on contrast prompts.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> found = fp.attribute(trace, " basketball", contrast="Tiger Woods plays the sport of")
    >>> float(abs(found.by_part().difference.sum() - found.difference)) < 1e-3
    True
    """

    in_terminal: ClassVar = ("rows",)

    contrast: Contrast
    here: Pushes
    there: tuple[Pushes, ...]

    @property
    def title(self) -> str:
        """Say how far the answer's logit is above its mean on the contrast prompts."""
        known = self.here.provenance
        than = "" if known.versus is None else f" rather than {known.versus}"
        above = f"{self.difference:+.3f} logits above {count_prompts(len(self.there))}"
        return f"{known.answer}{than}: {above}"

    @property
    def notes(self) -> tuple[str, ...]:
        """Say what it was compared with."""
        return (self.contrast.caption,)

    @property
    def caption(self) -> str:
        """How to read the table."""
        return f"difference: push less its mean on the contrast prompts, in logits, {self.here.convention}"

    @property
    def provenance(self) -> Provenance:
        """The prompt and answer, and in its settings the contrast prompts."""
        return self.here.provenance.including(**self.contrast.settings())

    @cached_property
    def mean(self) -> Float[Tensor, "layer neuron"]:
        """Every neuron's mean push on the contrast prompts, in logits."""
        return torch.stack([pushes.values.double() for pushes in self.there]).mean(dim=0)

    @property
    def values(self) -> Float[Tensor, "layer neuron"]:
        """Every neuron's contrast push, in logits."""
        return self.here.values.double() - self.mean

    @property
    def difference(self) -> float:
        """The answer's logit here (with versus, its lead) less its mean on the contrast prompts."""
        return self.here.logit - sum(pushes.logit for pushes in self.there) / len(self.there)

    @property
    def table(self) -> "pd.DataFrame":
        """The ten neurons of largest contrast push."""
        return self.top(min(10, self.values.numel()))

    def tables(self, top: int | None = None) -> "dict[str, pd.DataFrame]":
        """Name the tables a file holds."""
        rows = self.table if top is None else self.top(top)
        return {"rows": rows, "parts": self.by_part()}

    def top(self, top: int | None = 10) -> "pd.DataFrame":
        """Table the `top` neurons whose pushes are furthest above those on the contrast prompts."""
        activations = self.here.activations
        others = [pushes.activations.double() for pushes in self.there]
        columns = {
            "activation": activations, "contrast_activation": torch.stack(others).mean(dim=0),
            "push": self.here.values, "contrast_push": self.mean, "difference": self.values,
        }  # fmt: skip
        listed = list_top(
            self.here.trace.model, top, by=self.values, columns=columns, signs=activations
        )
        return self.provenance.note(listed)

    def by_part(self) -> "pd.DataFrame":
        """Table every part once: the column `difference` adds up to that of the logits."""
        table = self.here.by_part()
        means = sum(pushes.by_part().push for pushes in self.there) / len(self.there)
        table["contrast_push"] = means
        table["difference"] = table.push - means
        return self.provenance.note(table)


@torch.no_grad()
def contrast_pushes(
    contrast: Contrast,
    answer: str | int,
    *,
    versus: str | int | None = None,
    convention: str = "centred",
) -> ContrastPushes:
    """Account for an answer of one token on the prompt and on each contrast prompt, and subtract."""
    token = one_token(contrast.trace.model, answer, use="contrast pushes")
    here, *there = (
        attribute(trace, token, versus=versus, convention=convention).pieces[0]
        for trace in (contrast.trace, *contrast.others)
    )
    return ContrastPushes(contrast, here, tuple(there))

"""Prompts side by side: which neurons act differently, and what that is worth to an answer.

    difference of a part = its push on the first prompt − its push on the second, in logits
    contrast push of it  = its push here − the mean of its push over the contrast prompts

Both prompts are accounted for toward the same answer (with `versus`: above the same rival), each at
its own position, so the differences of all parts add up to the difference of the two logits. The
prompts may differ in length: nothing is carried from one to the other (`patch` does that).

Limits: pushes are direct, and each prompt divides by its own final scale s, so a neuron that is
equally active on both can still differ a little. A difference says what went along with the other
answer, not what caused it; `patch` and `ablate` test that. Contrast pushes are what is owed to the
subject: each prompt's own account, at its last position, the contrast prompts' mean taken away.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.arguments import Answer, Argument, Convention, Option, Position, Shown, Versus, verb
from ffnprobe.errors import OptionRefused, PromptRefused
from ffnprobe.models.model import Model
from ffnprobe.provenance import Provenance
from ffnprobe.reading.neuron_tables import list_top
from ffnprobe.results import Result
from ffnprobe.tracing.attribution import Pushes, attribute, name_answer, name_tokens
from ffnprobe.tracing.contrast import Contrast, count_prompts
from ffnprobe.tracing.trace import Trace, one_token, predicted

ORDERS = ("push", "activation")


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Result):
    """Every part's push toward one answer on two prompts: what the first has and the second has not.

    >>> import ffnprobe as fp
    >>> texts = ["Michael Jordan plays the sport of", "Tiger Woods plays the sport of"]
    >>> first, second = fp.run(fp.load("pocket"), texts)
    >>> found = fp.compare(first, second)
    >>> list(found.top(1).columns)[3:8]
    ['activation_first', 'activation_second', 'push_first', 'push_second', 'difference']
    >>> float(abs(found.by_part().difference.sum() - found.difference)) < 1e-3
    True
    """

    in_terminal: ClassVar = ("rows",)

    first: Pushes
    second: Pushes

    @property
    def caption(self) -> str:
        """How to read the table."""
        return "pushes in logits; answer tokens are what the neuron promotes on the prompt where it acts more"

    @property
    def title(self) -> str:
        """Say which answer is compared, and where it stands on each prompt."""
        answer = name_answer(self.first.provenance)
        is_one_model = self.first.trace.model.identity == self.second.trace.model.identity
        ends = []
        for pushes in (self.first, self.second):
            where = "" if is_one_model else f"in {pushes.trace.model.name} "
            ends.append(f"{pushes.logit:+.2f} {where}after {name_tokens(pushes)}")
        carried = self.first.account.heads.double().sum() - self.second.account.heads.double().sum()
        return (
            f"{answer}: {', '.join(ends)}; {float(carried):+.1f} of the difference of "
            f"{self.difference:+.1f} through attention (patch, paths)"
        )

    @property
    def values(self) -> Float[Tensor, "layer neuron"]:
        """Every neuron's difference of pushes, in logits."""
        return self.first.values - self.second.values

    @property
    def activations(self) -> Float[Tensor, "layer neuron"]:
        """Every neuron's difference of activations."""
        return self.first.activations - self.second.activations

    @property
    def difference(self) -> float:
        """How much higher the answer's logit (with versus, its lead) is on the first prompt."""
        return self.first.logit - self.second.logit

    @property
    def remainder(self) -> float:
        """What the parts leave unexplained of the difference: zero within tolerance."""
        return self.first.remainder - self.second.remainder

    @property
    def provenance(self) -> Provenance:
        """The model, the first prompt and answer, and in its settings the prompt it is compared with."""
        return self.first.provenance.including(
            compared_with=name_tokens(self.second), other_position=self.second.position
        )

    def top(self, top: int | None = 10, *, by: str = "push") -> pd.DataFrame:
        """Table the `top` neurons whose pushes (or activations) differ most, up or down.

        Answer tokens are what the neuron promotes on the prompt where its activation is larger in
        size: the answer's, by the sign it has there.
        """
        if by not in ORDERS:
            raise OptionRefused(f'neurons are not ordered by "{by}".', remedy=", ".join(ORDERS))
        differences = self.values if by == "push" else self.activations
        there, here = self.first.activations, self.second.activations
        columns = {
            "activation_first": there, "activation_second": here,
            "push_first": self.first.values, "push_second": self.second.values,
            "difference": self.values,
        }  # fmt: skip
        acting = torch.where(there.abs() >= here.abs(), there, here)
        model, sizes = self.first.trace.model, differences.abs()
        return self.provenance.note(list_top(model, top, by=sizes, columns=columns, signs=acting))

    @property
    def table(self) -> pd.DataFrame:
        """The ten neurons whose pushes differ most."""
        return self.top(min(10, self.values.numel()))

    def by_layer(self) -> pd.DataFrame:
        """Table each layer's differences: its heads, its neurons, its biases, and their sum."""
        there, here = self.first.by_layer(), self.second.by_layer()
        columns = ["attention", "neurons", "biases", "push"]
        table = there[["layer"]].join(there[columns] - here[columns])
        return self.provenance.note(table.rename(columns={"push": "difference"}))

    def by_part(self) -> pd.DataFrame:
        """Table every part once: the column `difference` adds up to that of the two logits."""
        there, here = self.first.by_part(), self.second.by_part()
        table = there.rename(columns={"push": "push_first"})
        table["push_second"] = here.push
        table["difference"] = there.push - here.push
        return self.provenance.note(table)

    def tables(self, top: Shown = None) -> dict[str, pd.DataFrame]:
        """Name the tables a file holds: neurons by push and by activation, every layer, every part."""
        k = min(10, self.values.numel()) if top is None else top
        return {
            "rows": self.top(k), "activations": self.top(k, by="activation"),
            "layers": self.by_layer(), "parts": self.by_part(),
        }  # fmt: skip


@verb
def compare(
    first: Annotated[Trace, Argument("The first prompt.", str, name="prompt", longest=20_000)],
    second: Annotated[Trace, Argument("The second prompt.", str, name="other", longest=20_000)],
    answer: Answer = None,
    *,
    versus: Versus = None,
    position: Position = -1,
    other_position: Annotated[int, Option("The position in the second prompt.")] = -1,
    convention: Convention = "centred",
) -> Comparison:
    """Compare two prompts: which neurons act differently, and what that is worth to an answer.

    Both are of one model, or of a model and an edit of it: then one prompt may be run on each, and
    the comparison says which neurons carry the new answer.

    Without an answer it is what the model says after the first prompt rather than what it says
    after the second; where both are the same, that token alone.

    >>> import ffnprobe as fp
    >>> texts = ["Michael Jordan plays the sport of", "Tiger Woods plays the sport of"]
    >>> first, second = fp.run(fp.load("pocket"), texts)
    >>> fp.compare(first, second, " golf").difference < 0
    True
    """
    if not _differ_in_answers_alone(first.model, second.model):
        raise PromptRefused(
            f"the prompts were run on two models: {first.model.name} and {second.model.name}.",
            remedy="run both on one",
        )
    if answer is None:
        answer = predicted(first, position)
        other = predicted(second, other_position)
        versus = other if versus is None and other != answer else versus
    # One token, so that both prompts are read where they are, not after an answer's pieces.
    token = one_token(first.model, answer, use="a comparison")
    there, here = (
        attribute(trace, token, versus=versus, position=index, convention=convention).pieces[0]
        for trace, index in ((first, position), (second, other_position))
    )
    return Comparison(there, here)


def _differ_in_answers_alone(first: Model, second: Model) -> bool:
    """Say whether two models are one, or one an edit of the other: all else is the same tensors."""
    if first.identity == second.identity:
        return True
    down = f".{first.layout.down}.weight"
    return first.weights.keys() == second.weights.keys() and all(
        tensor is second.weights[name]
        for name, tensor in first.weights.items()
        if not name.endswith(down)
    )


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
        above = f"{self.difference:+.3f} logits above {count_prompts(len(self.there))}"
        return f"{name_answer(self.here.provenance)}: {above}"

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
    def table(self) -> pd.DataFrame:
        """The ten neurons of largest contrast push."""
        return self.top(min(10, self.values.numel()))

    def tables(self, top: int | None = None) -> dict[str, pd.DataFrame]:
        """Name the tables a file holds."""
        rows = self.table if top is None else self.top(top)
        return {"rows": rows, "parts": self.by_part()}

    def top(self, top: int | None = 10) -> pd.DataFrame:
        """Table the `top` neurons whose pushes are furthest above those on the contrast prompts."""
        activations = self.here.activations
        others = [pushes.activations.double() for pushes in self.there]
        columns = {
            "activation": activations, "contrast_activation": torch.stack(others).mean(dim=0),
            "push": self.here.values, "contrast_push": self.mean, "difference": self.values,
        }  # fmt: skip
        model = self.here.trace.model
        listed = list_top(model, top, by=self.values, columns=columns, signs=activations)
        return self.provenance.note(listed)

    def by_part(self) -> pd.DataFrame:
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

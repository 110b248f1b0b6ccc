"""Two prompts side by side: which neurons act differently, and what that is worth to an answer.

    difference of a part = its push on the first prompt − its push on the second, in logits

Both prompts are accounted for toward the same answer (with `versus`: above the same rival), each at
its own position, so the differences of all parts add up to the difference of the two logits. The
prompts may differ in length: nothing is carried from one to the other (`patch` does that).

Limits: pushes are direct, and each prompt divides by its own final scale s, so a neuron that is
equally active on both can still differ a little. A difference says what went along with the other
answer, not what caused it; `patch` and `ablate` test that.

>>> import ffnprobe as fp
>>> texts = ["Michael Jordan plays the sport of", "Tiger Woods plays the sport of"]
>>> first, second = fp.run(fp.load("pocket"), texts)
>>> comparison = fp.compare(first, second)
>>> comparison.first.provenance.answer, comparison.first.provenance.versus
('␣basketball', '␣golf')
>>> float(abs(comparison.by_part().difference.sum() - comparison.difference)) < 1e-3
True
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.arguments import verb
from ffnprobe.errors import OptionRefused, PromptRefused
from ffnprobe.models.model import Model
from ffnprobe.options import Answer, Argument, Convention, Option, Position, Shown, Versus
from ffnprobe.provenance import Provenance
from ffnprobe.reading.neuron_tables import list_top
from ffnprobe.results import Result
from ffnprobe.tracing.answers import one_token, predicted
from ffnprobe.tracing.pushes import Pushes, attribute
from ffnprobe.tracing.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

ORDERS = ("push", "activation")


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Result):
    """Every part's push toward one answer on two prompts: what the first has and the second has not.

    >>> import ffnprobe as fp
    >>> texts = ["Michael Jordan plays the sport of", "Tiger Woods plays the sport of"]
    >>> first, second = fp.run(fp.load("pocket"), texts)
    >>> list(fp.compare(first, second).top(1).columns)[3:8]
    ['activation_first', 'activation_second', 'push_first', 'push_second', 'difference']
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
        known = self.first.provenance
        than = f" rather than {known.versus}" if known.versus else ""
        ends = (
            f"{pushes.logit:+.2f} {self._place(pushes)}" for pushes in (self.first, self.second)
        )
        carried = self.first.account.heads.double().sum() - self.second.account.heads.double().sum()
        return (
            f"{known.answer}{than}: {', '.join(ends)}; {float(carried):+.1f} of the difference of "
            f"{self.difference:+.1f} through attention (patch, paths)"
        )

    def _place(self, pushes: Pushes) -> str:
        """Say after which prompt, or where there are two models, in which."""
        two = self.first.trace.model.identity != self.second.trace.model.identity
        return f"{'in ' + pushes.trace.model.name + ' ' if two else ''}after {_read(pushes)}"

    @property
    def values(self) -> Float[Tensor, "layer neuron"]:
        """Every neuron's difference of pushes, in logits."""
        return self.first.values - self.second.values

    @property
    def activations(self) -> Float[Tensor, "layer neuron"]:
        """Every neuron's difference of activations."""
        return self.first.activations - self.second.activations

    @property
    def _acting(self) -> Float[Tensor, "layer neuron"]:
        """Every neuron's activation on the prompt where it acted more."""
        there, here = self.first.activations, self.second.activations
        return torch.where(there.abs() >= here.abs(), there, here)

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
            compared_with=_read(self.second), other_position=self.second.position
        )

    def top(self, top: int | None = 10, *, by: str = "push") -> "pd.DataFrame":
        """Table the `top` neurons whose pushes (or activations) differ most, up or down.

        Answer tokens are what the neuron promotes on the prompt where its activation is larger in
        size: the answer's, by the sign it has there.
        """
        if by not in ORDERS:
            raise OptionRefused(f'neurons are not ordered by "{by}".', remedy=", ".join(ORDERS))
        differences = self.values if by == "push" else self.activations
        columns = {
            "activation_first": self.first.activations, "activation_second": self.second.activations,
            "push_first": self.first.values, "push_second": self.second.values,
            "difference": self.values,
        }  # fmt: skip
        listed = list_top(
            self.first.trace.model, top, by=differences.abs(), columns=columns, signs=self._acting
        )
        return self.provenance.note(listed)

    @property
    def table(self) -> "pd.DataFrame":
        """The ten neurons whose pushes differ most."""
        return self.top(min(10, self.values.numel()))

    def by_layer(self) -> "pd.DataFrame":
        """Table each layer's differences: its heads, its neurons, its biases, and their sum."""
        there, here = self.first.by_layer(), self.second.by_layer()
        columns = ["attention", "neurons", "biases", "push"]
        table = there[["layer"]].join(there[columns] - here[columns])
        return self.provenance.note(table.rename(columns={"push": "difference"}))

    def by_part(self) -> "pd.DataFrame":
        """Table every part once: the column `difference` adds up to that of the two logits."""
        there, here = self.first.by_part(), self.second.by_part()
        table = there.rename(columns={"push": "push_first"})
        table["push_second"] = here.push
        table["difference"] = there.push - here.push
        return self.provenance.note(table)

    def tables(self, top: Shown = None) -> "dict[str, pd.DataFrame]":
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
    both = (
        attribute(trace, token, versus=versus, position=index, convention=convention)
        for trace, index in ((first, position), (second, other_position))
    )
    there, here = (pushes.pieces[0] for pushes in both)
    return Comparison(there, here)


def _read(pushes: Pushes) -> str:
    """Write the tokens up to the position of an account."""
    return " ".join(pushes.trace.tokens[: pushes.position + 1])


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

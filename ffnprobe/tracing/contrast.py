"""This fact, not this kind of sentence: a prompt compared with the same sentence about other subjects.

    contrast mean of n at p = mean over the contrast prompts of its activation at p's counterpart

A neuron set to its contrast mean does what it does in any sentence of this form; what the answer then
loses is owed to the subject. Positions are aligned as `align` says. Where the prompts begin alike
the contrast mean is the activation itself, so nothing is lost there. A position without a counterpart
is left as it is, and named. So is one that is an attention sink here or whose counterpart is one in any
contrast prompt: a sink's activations, hundreds of times larger, are no mean of what a word does.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from typing import Protocol

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.arguments import show, verb
from ffnprobe.errors import OptionRefused, PromptRefused
from ffnprobe.provenance import Provenance, Setting
from ffnprobe.results import Result
from ffnprobe.tracing.runs import run
from ffnprobe.tracing.trace import Trace, answer_ids, find_sinks, predicted


class HasPrompt(Protocol):
    """A prompt with its own answer, as a row of a table of facts has both."""

    @property
    def prompt(self) -> str: ...

    @property
    def answer(self) -> str: ...


_REMEDY = "the same sentence about another subject"
Prompts = str | Trace | Iterable[str | Trace | HasPrompt]


@dataclass(frozen=True)
class Alignment:
    """A prompt's positions and, for each other prompt, their counterparts there."""

    length: int
    front: int
    back: int
    counterparts: tuple[tuple[int | None, ...], ...]
    aside: tuple[int, ...] = ()

    @property
    def middle(self) -> range:
        """The positions where the prompts differ: the subject."""
        return range(self.front, self.length - self.back)

    @property
    def unmatched(self) -> tuple[int, ...]:
        """The positions that have no counterpart in any other prompt."""
        matched = enumerate(zip(*self.counterparts, strict=True))
        return tuple(position for position, each in matched if set(each) == {None})


def align(ids: Sequence[int], others: Sequence[Sequence[int]]) -> Alignment:
    """Align a prompt's tokens with those of others.

    Tokens that all prompts have in common at the front are aligned, and so are those at the back. In the
    middle, where they differ (the subject), the last token is aligned with the last, and the others from
    the end while there are any. A position may have no counterpart. One that is set aside has none either.

    >>> found = align((0, 7, 8, 9, 5), [(0, 3, 9, 5)])
    >>> found.counterparts
    ((0, None, 1, 2, 3),)
    >>> list(found.middle), found.unmatched
    ([1, 2], (1,))
    """
    prompts, length = [ids, *others], len(ids)
    front = _count_common(prompts)
    shortest = min(map(len, prompts)) - front
    back = min(_count_common([prompt[::-1] for prompt in prompts]), shortest)
    counterparts = []
    for other in others:
        from_end = (len(other) - length + position for position in range(front, length))
        matched = (there if there >= front else None for there in from_end)
        counterparts.append((*range(front), *matched))
    return Alignment(length, front, back, tuple(counterparts))


def _count_common(prompts: Sequence[Sequence[int]]) -> int:
    """Count the tokens that all prompts begin with."""
    columns = zip(*prompts, strict=False)  # the shortest ends it
    return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))


@dataclass(frozen=True, eq=False, repr=False)
class Contrast(Result):
    """A prompt, the contrast prompts kept, and the first token of each one's own answer.

    `left_out` names the prompts not used, since they are the same or have the same answer.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> found = fp.contrast_with(trace, " basketball", ["Tiger Woods plays the sport of"])
    >>> found.table.prompt.tolist(), found.table.answer.tolist()
    (['Tiger Woods plays the sport of'], ['␣golf'])
    """

    trace: Trace
    others: tuple[Trace, ...]
    answers: tuple[int, ...]
    alignment: Alignment
    left_out: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Say what is contrasted with how many."""
        return f"{self.trace.prompt}: {count_prompts(len(self.others))}"

    @property
    def caption(self) -> str:
        """How to read the table."""
        aside = "" if not self.left_out else f"; left out: {', '.join(self.left_out)}"
        return f"where the prompts differ: {self.subject or 'nowhere'}{aside}"

    @property
    def subject(self) -> str:
        """The tokens in which the prompt differs from the others."""
        return " ".join(self.trace.tokens[position] for position in self.alignment.middle)

    @property
    def provenance(self) -> Provenance:
        """The prompt, and in its settings the contrast prompts."""
        return self.trace.provenance.including(**self.settings())

    @property
    def table(self) -> pd.DataFrame:
        """Each contrast prompt: its answer, how likely that is there, and its differing tokens."""
        vocab, rows = self.trace.model.vocab, []
        for other, token in zip(self.others, self.answers, strict=True):
            chance = float(other.log_probabilities()[token].exp())
            end = len(other) - self.alignment.back
            subject = " ".join(other.tokens[self.alignment.front : end])
            rows.append((other.prompt, subject, vocab.show(token), chance))
        table = pd.DataFrame(rows, columns=["prompt", "subject", "answer", "probability"])
        return self.provenance.note(table)

    @cached_property
    def replacement(self) -> Float[Tensor, "layer pos neuron"]:
        """Every neuron's contrast mean; its own activation where a position has no counterpart."""
        own = self.trace.activations
        total = self.add_up([other.activations for other in self.others], like=own)
        matched = zip(*self.alignment.counterparts, strict=True)
        counts = torch.tensor([sum(there is not None for there in each) for each in matched])
        total /= counts.to(total).clamp(min=1)[:, None]
        means = total.to(own)
        means[:, counts == 0] = own[:, counts == 0]
        # Where all prompts begin alike the mean is the activation itself, but for rounding.
        means[:, : self.alignment.front] = own[:, : self.alignment.front]
        return means

    def add_up(
        self,
        others: Sequence[Float[Tensor, "layer other_pos column"]],
        *,
        like: Float[Tensor, "layer pos column"],
    ) -> Float[Tensor, "layer pos column"]:
        """Add up what the contrast prompts have at each position's counterparts, in float64."""
        total = torch.zeros_like(like, dtype=torch.float64)
        for other, matched in zip(others, self.alignment.counterparts, strict=True):
            pairs = [(here, there) for here, there in enumerate(matched) if there is not None]
            here, there = [here for here, _ in pairs], [there for _, there in pairs]
            for layer, own in enumerate(other):  # not all at once: indices copy
                total[layer, here] += own[there]
        return total

    def replacement_for(self, trace: Trace) -> Float[Tensor, "layer pos neuron"]:
        """Return the replacement for this prompt with an answer's pieces behind it, which stay."""
        behind = trace.activations[:, len(self.trace) :]
        if not behind.numel():
            return self.replacement
        return torch.cat([self.replacement, behind], dim=1)

    @property
    def unmatched(self) -> tuple[str, ...]:
        """The tokens that have no counterpart, with their positions, in words."""
        alone = [p for p in self.alignment.unmatched if p not in self.alignment.aside]
        return self._name(alone)

    @property
    def set_aside(self) -> tuple[str, ...]:
        """The tokens that are an attention sink, or aligned with one, with their positions, in words."""
        return self._name(self.alignment.aside)

    def _name(self, positions: Sequence[int]) -> tuple[str, ...]:
        return tuple(f"{self.trace.tokens[position]} at {position}" for position in positions)

    def settings(self) -> dict[str, Setting]:
        """Say what the prompt was contrasted with, as settings of a provenance."""
        settings: dict[str, Setting] = {"contrast": [other.prompt for other in self.others]}
        if self.unmatched:
            settings["no_counterpart"] = list(self.unmatched)
        if self.set_aside:
            settings["aligned_with_sinks"] = list(self.set_aside)
        return settings


@verb
def contrast_with(
    trace: Trace,
    answer: str | int,
    prompts: Prompts,
    *,
    answers: Sequence[str | int] | None = None,
    patterns: bool = False,
) -> Contrast:
    """Contrast a prompt and its answer with other prompts: texts, traces, or rows of facts.

    `answers` are the contrast prompts' own; without them those of the rows, else what the model says
    there. A prompt that is the same, or has the same answer, is left out and named; where none is
    left, it is an error.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> rows = fp.find_contrast_rows("pocket", trace.prompt, " basketball", most=4)
    >>> len(fp.contrast_with(trace, " basketball", rows).others)
    4
    """
    asked = [prompts] if isinstance(prompts, str | Trace) else list(prompts)
    if answers is not None and len(answers) != len(asked):
        raise OptionRefused(
            f"{len(answers)} answers are given for {len(asked)} contrast prompts.",
            remedy="one for each, or none",
        )
    if not asked:
        raise PromptRefused("there is no contrast prompt.", remedy=_REMEDY)
    for one in asked:
        if not isinstance(one, str | Trace) and not hasattr(one, "prompt"):
            raise OptionRefused(f"{show(one)} is not a contrast prompt.", remedy=_REMEDY)
        if isinstance(one, Trace) and one.model.identity != trace.model.identity:
            raise PromptRefused(
                f"the contrast prompts were run on another model: {one.model.name}, not "
                f"{trace.model.name}.",
                remedy="run them on this one",
            )
    own = answer_ids(trace.model, answer)[0]
    given = [one if isinstance(one, str | Trace) else one.prompt for one in asked]
    texts = [one for one in given if isinstance(one, str)]
    ran = iter(run(trace.model, texts, bos=trace.has_bos, patterns=patterns) if texts else [])
    others = [next(ran) if isinstance(one, str) else one for one in given]
    # Rows of facts have answers of their own; texts and traces have none.
    named: Sequence[str | int | None] = answers or [getattr(one, "answer", None) for one in asked]
    tokens = [
        predicted(other) if one is None else answer_ids(trace.model, one)[0]
        for other, one in zip(others, named, strict=True)
    ]
    differing = [n for n, other in enumerate(others) if other.ids != trace.ids]
    if not differing:
        raise PromptRefused("no contrast prompt differs from the prompt.", remedy=_REMEDY)
    chosen = [n for n in differing if tokens[n] != own]
    if not chosen:
        raise PromptRefused(
            f"every contrast prompt has the answer {trace.model.vocab.show(own)} too: nothing tells "
            "them apart.",
            remedy="subjects with other answers",
        )
    used = tuple(others[n] for n in chosen)
    return Contrast(
        trace=trace,
        others=used,
        answers=tuple(tokens[n] for n in chosen),
        alignment=_align(trace, used),
        left_out=tuple(other.prompt for n, other in enumerate(others) if n not in chosen),
    )


def choose_contrast(trace: Trace, answer: str | int, contrast: "Contrast | Prompts") -> Contrast:
    """Take a contrast as it is, if it is this prompt's, and build one of prompts."""
    if not isinstance(contrast, Contrast):
        return contrast_with(trace, answer, contrast)
    other = contrast.trace
    if (other.ids, other.model.fingerprint) != (trace.ids, trace.model.fingerprint):
        raise PromptRefused(
            f'the contrast is of another prompt: "{other.prompt}" on {other.model.name}.',
            remedy="contrast_with this trace",
        )
    if (own := answer_ids(trace.model, answer)[0]) in contrast.answers:
        raise PromptRefused(
            f"the contrast has a prompt with the answer {trace.model.vocab.show(own)} too.",
            remedy="contrast_with the trace and this answer",
        )
    return contrast


def count_prompts(many: int) -> str:
    """Write how many contrast prompts there are."""
    return "1 contrast prompt" if many == 1 else f"{many} contrast prompts"


def _align(trace: Trace, others: Sequence[Trace]) -> Alignment:
    """Align a prompt with others; where they differ, attention sinks of any of them are set aside."""
    alignment = align(trace.ids, [other.ids for other in others])
    sinks = set(find_sinks(trace.activations))
    for other, matched in zip(others, alignment.counterparts, strict=True):
        its_sinks = find_sinks(other.activations)
        sinks |= {position for position, there in enumerate(matched) if there in its_sinks}
    aside = tuple(sorted(position for position in sinks if position >= alignment.front))
    counterparts = tuple(
        tuple(None if position in aside else there for position, there in enumerate(matched))
        for matched in alignment.counterparts
    )
    return replace(alignment, counterparts=counterparts, aside=aside)

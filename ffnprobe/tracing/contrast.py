"""This fact, not this kind of sentence: a prompt compared with the same sentence about other subjects.

    contrast mean of n at p = mean over the contrast prompts of its activation at p's counterpart
    contrast push           = its push here − the mean of its push there

A neuron set to its contrast mean does what it does in any sentence of this form; what the answer then
loses is owed to the subject. Positions are aligned as `alignment` says. Where the prompts begin alike
the contrast mean is the activation itself, so nothing is lost there. A position without a counterpart
is left as it is, and named.

Pushes are those of each prompt's own account, with its own scales, subtracted: over all parts they add
up to the answer's logit here less its mean over the contrast prompts.

>>> import ffnprobe as fp
>>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
>>> contrast = contrast_with(trace, " basketball", ["Tiger Woods plays the sport of"])
>>> [trace.tokens[position] for position in contrast.alignment.middle]
['Michael', '␣Jordan']
>>> tuple(contrast.replacement.shape) == tuple(trace.activations.shape)
True
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.errors import PromptRefused
from ffnprobe.models.provenance import Setting
from ffnprobe.tracing.alignment import Alignment, align
from ffnprobe.tracing.answers import answer_ids, predicted
from ffnprobe.tracing.running import run
from ffnprobe.tracing.trace import Trace

Prompts = str | Sequence[str | Trace]


@dataclass(frozen=True, eq=False)
class Contrast:
    """A prompt, the contrast prompts kept, and the first token of each one's own answer.

    `left_out` names the prompts not used, since they are the same or have the same answer.
    """

    trace: Trace
    others: tuple[Trace, ...]
    answers: tuple[int, ...]
    alignment: Alignment
    left_out: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Contrast({self.trace.prompt}: {len(self.others)} contrast prompts)"

    @cached_property
    def replacement(self) -> Float[Tensor, "layer pos neuron"]:
        """Every neuron's contrast mean; its own activation where a position has no counterpart."""
        own = self.trace.activations
        total = self.add_up([other.activations for other in self.others], like=own)
        has_any = [
            sum(other_position is not None for other_position in matched)
            for matched in zip(*self.alignment.counterparts, strict=True)
        ]
        counts = torch.tensor(has_any, dtype=total.dtype)[:, None]
        return torch.where(counts > 0, total / counts.clamp(min=1), own.double()).to(own)

    def add_up(
        self,
        others: Sequence[Float[Tensor, "layer other_pos column"]],
        *,
        like: Float[Tensor, "layer pos column"],
    ) -> Float[Tensor, "layer pos column"]:
        """Add up what the contrast prompts have at each position's counterparts, in float64."""
        total = torch.zeros_like(like, dtype=torch.float64)
        for other, matched in zip(others, self.alignment.counterparts, strict=True):
            here = [
                position
                for position, other_position in enumerate(matched)
                if other_position is not None
            ]
            total[:, here] += other[
                :, [other_position for other_position in matched if other_position is not None]
            ]
        return total

    def replacement_for(self, trace: Trace) -> Float[Tensor, "layer pos neuron"]:
        """Return the replacement for this prompt with an answer's pieces behind it, which stay."""
        behind = trace.activations[:, len(self.trace) :]
        return torch.cat([self.replacement, behind], dim=1)

    @property
    def unmatched(self) -> tuple[str, ...]:
        """The tokens that have no counterpart, with their positions, in words."""
        tokens = self.trace.tokens
        return tuple(f"{tokens[position]} at {position}" for position in self.alignment.unmatched)

    def settings(self) -> dict[str, Setting]:
        """Say what the prompt was contrasted with, as settings of a provenance."""
        known: dict[str, Setting] = {"contrast": [other.prompt for other in self.others]}
        if self.unmatched:
            known["no_counterpart"] = list(self.unmatched)
        return known


def contrast_with(
    trace: Trace,
    answer: str | int,
    prompts: Prompts,
    *,
    answers: Sequence[str | int] | None = None,
    patterns: bool = False,
) -> Contrast:
    """Compare a prompt and its answer with contrast prompts: texts, or traces of them.

    `answers` are the contrast prompts' own; without them, what the model says there. A prompt that is
    the same, or has the same answer, is left out and named; where none is left, it is an error.
    """
    given: list[str | Trace] = [prompts] if isinstance(prompts, str) else list(prompts)
    if not given:
        raise PromptRefused("there is no contrast prompt.", remedy=_REMEDY)
    own = answer_ids(trace.model, answer)[0]
    others = _run_missing(trace, given, patterns=patterns)
    if answers is None:
        tokens = [predicted(other) for other in others]
    else:
        tokens = [answer_ids(trace.model, one)[0] for one in answers]
    differing = [n for n, other in enumerate(others) if other.ids != trace.ids]
    if not differing:
        raise PromptRefused("no contrast prompt differs from the prompt.", remedy=_REMEDY)
    kept = [n for n in differing if tokens[n] != own]
    if not kept:
        raise PromptRefused(
            f"every contrast prompt has the answer {trace.model.vocab.show(own)} too: nothing tells "
            "them apart.",
            remedy="subjects with other answers",
        )
    chosen = tuple(others[n] for n in kept)
    return Contrast(
        trace=trace,
        others=chosen,
        answers=tuple(tokens[n] for n in kept),
        alignment=align(trace.ids, [other.ids for other in chosen]),
        left_out=tuple(other.prompt for n, other in enumerate(others) if n not in kept),
    )


_REMEDY = "the same sentence about another subject"


def _run_missing(trace: Trace, given: Sequence[str | Trace], *, patterns: bool) -> list[Trace]:
    """Run the texts among the prompts; traces must be of the same model."""
    for one in given:
        if isinstance(one, Trace) and one.model.identity != trace.model.identity:
            raise PromptRefused(
                f"the contrast prompts were run on another model: {one.model.name}, not "
                f"{trace.model.name}.",
                remedy="run them on this one",
            )
    texts = [one for one in given if isinstance(one, str)]
    ran = iter(run(trace.model, texts, bos=trace.has_bos, patterns=patterns) if texts else [])
    return [next(ran) if isinstance(one, str) else one for one in given]

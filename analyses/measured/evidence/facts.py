"""Facts that a model knows, each with contrast prompts whose own answers it knows too."""

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import ffnprobe as fp
from ffnprobe.errors import FfnProbeError
from ffnprobe.facts.formats import read_facts
from ffnprobe.tracing.trace import answer_ids, predicted

# Of so many rows of the relation, those the model knows are contrast prompts, at least two.
DRAWN, LEAST = 16, 2


@dataclass(frozen=True)
class Known:
    """A prompt, its answer (one token), and its contrast."""

    trace: fp.Trace
    token: int
    contrast: fp.Contrast

    @property
    def positions(self) -> list[int]:
        """The subject's positions that have a counterpart in every contrast prompt, and the last."""
        alignment, last = self.contrast.alignment, len(self.trace) - 1
        matched = [
            place
            for place in alignment.middle
            if place != last and all(row[place] is not None for row in alignment.counterparts)
        ]
        return [*matched, last]


def find_known(
    model: fp.Model, facts: str, *, seed: int, contrasts: int, done: Collection[str] = ()
) -> Iterator[Known | None]:
    """Find facts in random order that the model knows, with at most so many contrast prompts.

    A prompt that is done is known: None stands for it, and it is not run again. Nor are the rows before
    the last one done, since facts are found in order.
    """
    rows = list(read_facts(facts, templates="first").rows)
    random.Random(seed).shuffle(rows)
    places = {row.prompt: number for number, row in reversed(list(enumerate(rows)))}
    passed = max((places[prompt] for prompt in done if prompt in places), default=-1)
    for number, row in enumerate(rows):
        if number <= passed or row.prompt in done:
            # A subject with two answers has two rows.
            if row.prompt in done and number == places[row.prompt]:
                yield None
            continue
        if len(answer_ids(model, row.answer)) > 1:
            continue
        trace = fp.run(model, row.prompt)
        token = answer_ids(model, row.answer)[0]
        if predicted(trace) != token:
            continue
        try:
            others = fp.find_contrast_rows(
                rows, row.prompt, row.answer, model=model.name, most=DRAWN, seed=seed
            )
        except FfnProbeError:  # a relation with one answer has nothing to contrast
            continue
        ran = fp.run(model, [other.prompt for other in others])
        known = [
            (one, answer_ids(model, other.answer)[0])
            for one, other in zip(ran, others, strict=True)
            if predicted(one) == answer_ids(model, other.answer)[0] != token
        ][:contrasts]
        if len(known) >= LEAST:
            contrast = fp.contrast_with(
                trace, token, [one for one, _ in known], answers=[answer for _, answer in known]
            )
            yield Known(trace, token, contrast)

"""Contrast prompts out of a table of facts: the same sentence about other subjects, other answers.

A row's template is its prompt with a slot for its subject. The prompt asked about is put in one
of the templates, whether its subject is in the table or not; the rows of the same relation in that
template whose answers differ are its contrast prompts.

>>> found = find_contrast_rows("pocket", "Michael Jordan plays the sport of", " basketball", most=3)
>>> [row.prompt.removesuffix(" plays the sport of") != row.prompt for row in found]
[True, True, True]
>>> " basketball" in {row.answer for row in found}
False
"""

import random
from collections.abc import Iterable

from ffnprobe.arguments import verb
from ffnprobe.errors import DataRefused
from ffnprobe.facts.formats import EMBEDDED, Facts, read_facts
from ffnprobe.facts.rows import FactRow
from ffnprobe.options import Seed

SLOT = "[X]"
MOST = 20


@verb
def find_contrast_rows(
    facts: Facts,
    prompt: str,
    answer: str,
    *,
    model: str = EMBEDDED,
    most: int = MOST,
    seed: Seed = 0,
) -> list[FactRow]:
    """Find rows of the prompt's relation and template with other answers, `most` of them by chance.

    Pocket's own table is of the facts that model was taught; for another model it is refused.

    >>> import ffnprobe as fp
    >>> rows = fp.find_contrast_rows("pocket", "Tiger Woods plays the sport of", " golf", most=2)
    >>> [row.answer == " golf" for row in rows]
    [False, False]
    """
    if isinstance(facts, str) and facts == EMBEDDED and model != EMBEDDED:
        raise DataRefused(
            f"the table {EMBEDDED} holds what pocket was taught; {model} was not.",
            remedy="a file of facts, in any format that `score` reads",
        )
    table = read_facts(facts, templates="all")
    rows = [(row, template) for row in table.rows if (template := find_template(row)) is not None]
    if not rows:
        raise DataRefused(
            f"{table.source} does not say what the subjects of its prompts are.",
            remedy="a table with subjects, or contrast prompts one by one",
        )
    fitting = [(row, template) for row, template in rows if fits(template, prompt)]
    own = [pair for pair in fitting if pair[0].prompt == prompt]
    if not fitting:
        raise DataRefused(
            f'no fact of {table.source} is put as "{prompt}" is.',
            remedy=f"one of its sentences, such as: {rows[0][1].replace(SLOT, '…')}",
        )
    # Of several templates that fit, the row's own, else the one that says most.
    chosen, wanted = max(own or fitting, key=lambda pair: len(pair[1]))
    same = [
        row for row, template in fitting if (row.relation, template) == (chosen.relation, wanted)
    ]
    others = list(
        _drop_repeats(row for row in same if row.prompt != prompt and row.answer != answer)
    )
    if not others:
        raise DataRefused(
            f'every fact of {table.source} put as "{wanted.replace(SLOT, "…")}" has the answer '
            f'"{answer}" or is the prompt itself.',
            remedy="a table with other answers",
        )
    return sorted(random.Random(seed).sample(others, min(most, len(others))), key=others.index)


def find_template(row: FactRow) -> str | None:
    """Return a row's prompt with a slot for its subject; None where it does not say its subject."""
    for subject in (row.subject, row.subject[:1].upper() + row.subject[1:]):
        if subject and subject in row.prompt:
            return row.prompt.replace(subject, SLOT, 1)
    return None


def fits(template: str, prompt: str) -> bool:
    """Say whether a prompt is a template with something in its slot."""
    before, _, after = template.partition(SLOT)
    has_room = len(prompt) > len(before) + len(after)
    return has_room and prompt.startswith(before) and prompt.endswith(after)


def _drop_repeats(rows: Iterable[FactRow]) -> Iterable[FactRow]:
    """Leave out rows whose prompt was there before: a subject may have several answers."""
    return {row.prompt: row for row in rows}.values()

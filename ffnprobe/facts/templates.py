"""Sentences with a slot for the subject: `{}`, `{subject}` or `[X]`; `[Y]` marks the answer.

A left-to-right model sees only what comes before the answer, so `[Y]` must be last: only spaces and
punctuation may follow it.

>>> fill("[X] was born in [Y] .", "Mozart", "Salzburg")
('Mozart was born in', ' Salzburg')
"""

from collections.abc import Sequence

from ffnprobe.errors import DataRefused, OptionRefused
from ffnprobe.facts.rows import FactRow, Found, Problem, space

SLOTS = ("{}", "{subject}", "[X]")
ANSWER = "[Y]"
CHOICES = ("first", "all")


def has_slot(text: str) -> bool:
    """Say whether a text has a slot for the subject."""
    return any(slot in text for slot in SLOTS)


def fill(template: str, subject: str, answer: str) -> tuple[str, str]:
    """Write a fact as a prompt and its answer, or say why the template cannot."""
    if not has_slot(template):
        raise DataRefused(f'the template "{template}" has no slot for the subject: {{}} or [X]')
    if not is_answer_last(template):
        raise DataRefused(
            f'"{template}" has text after its answer [Y]: it cannot be used with a left-to-right model'
        )
    prompt, marker, _ = template.partition(ANSWER)
    # A pattern says itself whether a space comes before its answer: "([Y])" has none.
    follows = answer if marker and not prompt.endswith(" ") else space(answer)
    for slot in SLOTS:
        prompt = prompt.replace(slot, subject)
    return (prompt.removesuffix(" ") if marker else prompt), follows


def is_answer_last(template: str) -> bool:
    """Say whether nothing but spaces and punctuation follows the answer (if it is marked)."""
    _, _, after = template.partition(ANSWER)
    return not any(letter.isalnum() or letter in "[{" for letter in after)


def check_templates(templates: str) -> None:
    """Refuse anything but `first` or `all`."""
    if templates not in CHOICES:
        raise OptionRefused(
            f'"{templates}" is not a choice of templates.', remedy=", ".join(CHOICES)
        )


def fill_templates(
    subject: str, answer: str, relation: str, asked_by: Sequence[str], where: str
) -> list[Found]:
    """Write one fact in each of the templates, or say what is missing."""
    for name, text in (("subject", subject), ("answer", answer)):
        if not text.strip():
            return [Problem(where, f"no {name}")]
    if not asked_by:
        return [Problem(where, f'the relation "{relation}" has no template')]
    found: list[Found] = []
    for template in asked_by:
        try:
            prompt, follows = fill(template, subject, answer)
        except DataRefused as error:
            found.append(Problem(where, error.what))
        else:
            found.append(FactRow(prompt, follows, relation, subject, where))
    return found

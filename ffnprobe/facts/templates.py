"""Sentences with a slot for the subject: `{}`, `{subject}` or `[X]`; `[Y]` marks the answer.

A left-to-right model is asked by what comes before the answer, so `[Y]` must be last: only spaces
and punctuation may follow it.

>>> ask("[X] was born in [Y] .", "Mozart", "Salzburg")
('Mozart was born in', ' Salzburg')
"""

from collections.abc import Sequence

from ffnprobe.errors import DataRefused, OptionRefused
from ffnprobe.facts.rows import FactRow, Found, Problem, space

SLOTS = ("{}", "{subject}", "[X]")
ANSWER = "[Y]"
CHOICES = ("first", "all")


def has_slot(text: str) -> bool:
    """Say whether a text has a place for the subject."""
    return any(slot in text for slot in SLOTS)


def ask(template: str, subject: str, answer: str) -> tuple[str, str]:
    """Put a fact as a prompt and its answer, or say why the template cannot."""
    if not has_slot(template):
        raise DataRefused(f'the template "{template}" has no slot for the subject: {{}} or [X]')
    if not is_answer_last(template):
        raise DataRefused(f'"{template}" goes on after its answer [Y]: it cannot be asked')
    asked, marker, _ = template.partition(ANSWER)
    # A pattern says itself whether a space stands before its answer: "([Y])" has none.
    follows = answer if marker and not asked.endswith(" ") else space(answer)
    for slot in SLOTS:
        asked = asked.replace(slot, subject)
    return (asked.removesuffix(" ") if marker else asked), follows


def is_answer_last(template: str) -> bool:
    """Say whether nothing but spaces and punctuation follows the answer (if it has a place)."""
    _, _, after = template.partition(ANSWER)
    return not any(letter.isalnum() or letter in "[{" for letter in after)


def check_templates(templates: str) -> None:
    """Refuse anything but `first` or `all`."""
    if templates not in CHOICES:
        raise OptionRefused(f'"{templates}" is no choice of templates.', remedy=", ".join(CHOICES))


def put(
    subject: str, answer: str, relation: str, asked_by: Sequence[str], where: str
) -> list[Found]:
    """Put one fact in each of the templates, or say what it lacks."""
    for name, text in (("subject", subject), ("answer", answer)):
        if not text.strip():
            return [Problem(where, f"no {name}")]
    if not asked_by:
        return [Problem(where, f'no template says how "{relation}" is asked')]
    found: list[Found] = []
    for template in asked_by:
        try:
            prompt, follows = ask(template, subject, answer)
        except DataRefused as error:
            found.append(Problem(where, error.what))
        else:
            found.append(FactRow(prompt, follows, relation, subject, where))
    return found

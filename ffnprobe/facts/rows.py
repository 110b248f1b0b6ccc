"""One fact per row: the prompt, the answer that follows it, and where both were written.

A row that cannot be read is a `Problem` with its file and line, and the other rows are still read.
The answer is exactly what is predicted after the prompt: include the leading space. Tables of words
(subject, answer) are written without it: there one space is added between prompt and answer, unless
the word has its own. Nothing else is ever changed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ffnprobe.errors import DataRefused, OptionRefused


@dataclass(frozen=True)
class FactRow:
    """A prompt and its true continuation; `where` names the file and line it was read from.

    >>> import ffnprobe as fp
    >>> fp.FactRow("Michael Jordan plays the sport of", " basketball", relation="sport").relation
    'sport'
    """

    prompt: str
    answer: str
    relation: str = ""
    subject: str = ""
    where: str = ""

    @property
    def fact(self) -> tuple[str, str, str]:
        """What is stated, in whatever words: a fact in several templates is several rows."""
        return (self.relation, self.subject or self.prompt, self.answer)


@dataclass(frozen=True)
class Problem:
    """A row that was left out, and why."""

    where: str
    problem: str


Found = FactRow | Problem


@dataclass(frozen=True)
class FactTable:
    """The facts of a file, in its order, and the rows that could not be read."""

    source: str
    format: str
    rows: tuple[FactRow, ...]
    problems: tuple[Problem, ...]


def space(word: str) -> str:
    """Add one leading space, unless the word has its own."""
    return word if word.startswith(" ") else f" {word}"


def gather(found: Iterable[Found], *, source: str, format: str) -> FactTable:
    """Separate rows from problems; a repeated row is a problem."""
    rows: dict[tuple[str, str, str], FactRow] = {}
    problems: list[Problem] = []
    for one in found:
        if isinstance(one, Problem):
            problems.append(one)
            continue
        first = rows.setdefault((one.relation, one.prompt, one.answer), one)
        if first is not one:
            problems.append(Problem(one.where, f"the same fact as {first.where}"))
    return FactTable(source, format, tuple(rows.values()), tuple(problems))


# MERGED: ffnprobe.facts.templates
# Sentences with a slot for the subject: `{}`, `{subject}` or `[X]`; `[Y]` marks the answer.
#
# A left-to-right model sees only what comes before the answer, so `[Y]` must be last: only spaces and
# punctuation may follow it.
#
# >>> fill("[X] was born in [Y] .", "Mozart", "Salzburg")
# ('Mozart was born in', ' Salzburg')


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

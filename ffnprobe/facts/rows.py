"""One fact per row: the prompt, the answer that follows it, and where both were written.

A row that cannot be read is a `Problem` with its file and line, and the other rows are still read.
The answer is exactly what is predicted after the prompt: include the leading space. Tables of words
(subject, answer) are written without it: there one space is added between prompt and answer, unless
the word has its own. Nothing else is ever changed.

A template is a sentence with a slot for the subject: `{}`, `{subject}` or `[X]`; `[Y]` marks the answer.
A left-to-right model sees only what comes before the answer, so `[Y]` must be last: only spaces and
punctuation may follow it.

>>> fill_templates("Mozart", "Salzburg", "birth", ["[X] was born in [Y] ."], where="line 2")
[FactRow(prompt='Mozart was born in', answer=' Salzburg', relation='birth', subject='Mozart', where='line 2')]
"""

from collections.abc import Sequence
from dataclasses import dataclass

SLOTS = ("{}", "{subject}", "[X]")
ANSWER = "[Y]"


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


def has_slot(text: str) -> bool:
    """Say whether a text has a slot for the subject."""
    return any(slot in text for slot in SLOTS)


def is_answer_last(template: str) -> bool:
    """Say whether nothing but spaces and punctuation follows the answer (if it is marked)."""
    _, _, after = template.partition(ANSWER)
    return not any(letter.isalnum() or letter in "[{" for letter in after)


def state_fact(
    prompt: str, answer: str, relation: str, subject: str, where: str, *, named: str = "answer"
) -> FactRow | Problem:
    """Make a row of a prompt and its answer, or say which of them is missing."""
    for name, text in (("prompt", prompt), (named, answer)):
        if not text.strip():
            return Problem(where, f"no {name}")
    return FactRow(prompt, answer, relation, subject, where)


def fill_templates(
    subject: str, answer: str, relation: str, templates: Sequence[str], where: str
) -> list[FactRow | Problem]:
    """Write one fact in each of the templates, or say what is missing."""
    for name, text in (("subject", subject), ("answer", answer)):
        if not text.strip():
            return [Problem(where, f"no {name}")]
    if not templates:
        return [Problem(where, f'the relation "{relation}" has no template')]
    return [_fill(template, subject, answer, relation, where) for template in templates]


def _fill(template: str, subject: str, answer: str, relation: str, where: str) -> FactRow | Problem:
    """Write a fact in a template, or say why the template cannot."""
    if not has_slot(template):
        return Problem(where, f'the template "{template}" has no slot for the subject: {{}} or [X]')
    if not is_answer_last(template):
        return Problem(
            where,
            f'"{template}" has text after its answer [Y]: it cannot be used with a left-to-right model',
        )
    prompt, marker, _ = template.partition(ANSWER)
    # A pattern says itself whether a space comes before its answer: "([Y])" has none.
    continuation = answer if marker and not prompt.endswith(" ") else space(answer)
    for slot in SLOTS:
        prompt = prompt.replace(slot, subject)
    prompt = prompt.removesuffix(" ") if marker else prompt
    return FactRow(prompt, continuation, relation, subject, where)

"""One fact per row: the prompt, the answer that follows it, and where both were written.

A row that cannot be read is a `Problem` with its file and line, and the other rows are still read.
The answer is exactly what is predicted after the prompt: include the leading space. Tables of words
(subject, answer) are written without it: there one space is added between prompt and answer, unless
the word has its own. Nothing else is ever changed.
"""

from collections.abc import Iterable
from dataclasses import dataclass


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

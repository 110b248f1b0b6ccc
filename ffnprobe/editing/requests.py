"""What an edit is asked for: a prompt, the subject in it, and the answer it shall have.

A request is written several times: alone, after a few prefixes (so that the edit does not depend on
what stands in front of the subject), and as "SUBJECT is a", whose predictions shall stay.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ffnprobe.errors import OptionRefused, PromptRefused
from ffnprobe.facts.formats import EMBEDDED, read_facts
from ffnprobe.facts.rows import FactRow
from ffnprobe.models.model import Model
from ffnprobe.tracing.runs import prompt_ids
from ffnprobe.tracing.trace import answer_ids

ESSENCE = "{subject} is a"
SEPARATOR = ". "


@dataclass(frozen=True)
class Request:
    """One fact to write: `answer` shall follow `prompt`, which holds `subject`."""

    prompt: str
    subject: str
    answer: str
    pieces: tuple[int, ...]


@dataclass(frozen=True)
class Context:
    """A request as it is run: `start` is the subject's last token, `reads` where pieces are predicted.

    `owner` is the number of the request; the context whose predictions shall stay has no pieces.
    """

    owner: int
    ids: tuple[int, ...]
    start: int
    reads: tuple[int, ...]
    pieces: tuple[int, ...]


def find_subject(row: FactRow) -> str:
    """Return a row's subject as its prompt writes it; one of pocket's prompts says its own."""
    if row.subject:
        first = row.subject[:1].upper() + row.subject[1:]
        return first if row.subject not in row.prompt and first in row.prompt else row.subject
    for one in read_facts(EMBEDDED, templates="all").rows:
        if one.prompt == row.prompt:
            return find_subject(one)
    raise OptionRefused(
        f'which words of "{row.prompt}" are its subject?',
        remedy='subject="…" (--subject "…"); in a table, a column "subject"',
    )


def refuse_twice(rows: Sequence[FactRow]) -> None:
    """Refuse a prompt that stands twice: one of its answers would undo the other."""
    seen: set[str] = set()
    for row in rows:
        if row.prompt in seen:
            raise OptionRefused(
                f'"{row.prompt}" stands twice among the facts to write.',
                remedy="one answer for each prompt",
            )
        seen.add(row.prompt)


def make_request(model: Model, prompt: str, subject: str, answer: str) -> Request:
    """Check what is asked for: the subject stands in the prompt, the answer has tokens."""
    if not subject.strip():
        raise OptionRefused("the subject is empty.", remedy='subject="Michael Jordan"')
    if subject not in prompt:
        raise OptionRefused(
            f'the subject "{subject}" is not in the prompt "{prompt}".',
            remedy="its words as the prompt has them, upper and lower case alike",
        )
    return Request(prompt, subject, answer, answer_ids(model, answer))


def write_contexts(
    model: Model, request: Request, owner: int, prefixes: Sequence[Sequence[int]]
) -> list[Context]:
    """Write a request alone and after each prefix, then the prompt whose predictions shall stay."""
    after = len(request.prompt) - request.prompt.rindex(request.subject) - len(request.subject)
    alone = prompt_ids(model, request.prompt, bos=None)
    bos = alone[:1] if model.vocab.puts_bos(None) else ()
    follows = model.vocab.pieces(f"{SEPARATOR}{request.prompt}")
    prompts = [alone, *((*bos, *prefix, *follows) for prefix in prefixes)]
    most = model.config.positions - len(request.pieces) + 1
    if len(alone) > most:
        raise PromptRefused(
            f"the prompt is {len(alone)} tokens and the answer {len(request.pieces)}; {model.name} "
            f"has {model.config.positions} positions.",
            remedy="a shorter prompt",
        )
    found = []
    for ids in prompts:
        if len(ids) <= most:  # a prefix that leaves no room is left out
            reads = tuple(range(len(ids) - 1, len(ids) - 1 + len(request.pieces)))
            start = _find_end(model, ids[len(bos) :], after) + len(bos)
            found.append(Context(owner, (*ids, *request.pieces[:-1]), start, reads, request.pieces))
    essence = ESSENCE.format(subject=request.subject)
    ids = prompt_ids(model, essence, bos=None)
    start = _find_end(model, ids[len(bos) :], len(essence) - len(request.subject)) + len(bos)
    return [*found, Context(owner, ids, start, (len(ids) - 1,), ())]


def _find_end(model: Model, ids: Sequence[int], after: int) -> int:
    """Return the position of the last token of a subject that so many characters follow."""
    whole = len(model.vocab.text(ids))
    for number in range(1, len(ids)):
        if whole - len(model.vocab.text(ids[:number])) <= after:
            return number - 1
    return len(ids) - 1

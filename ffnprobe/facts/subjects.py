"""Which words a prompt is about, and the same sentence about others.

The subject is a name (words with a capital next to each other, with a small word between them at most), or
where the prompt has none, or no others are found for it, a word that is not a function word; of several,
the one whose neurons are estimated to help the answer most.

What it is compared with is made without being asked: rows of pocket's own table for pocket; for a subject
of one token, the tokens of the same form nearest to it by embedding; else a short list of countries, cities,
people and companies. Prompts are left out whose attention sink would be aligned with the subject's last token
(without BOS the first position is one, and a shorter subject ends there). Of the others those are kept where
the model says another word, the surest first; where fewer than two say a word, those that say anything else;
where fewer than two do, the other of the two lists is tried (for several tokens, what is nearest to the last
one).

In a table of facts (`find_contrast_rows`) a row's template is its prompt with a slot for its subject. The
prompt asked about is put in one of the templates, whether its subject is in the table or not; the rows of
the same relation in that template whose answers differ are its contrast prompts.

>>> import ffnprobe as fp
>>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
>>> names, words = list_spans(trace)
>>> [[trace.tokens[position] for position in span] for span in (*names, *words)]
[['Michael', '␣Jordan'], ['␣plays'], ['␣sport']]
"""

import random
import re
from collections.abc import Iterator, Sequence
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.arguments import Seed, verb
from ffnprobe.errors import DataRefused, FfnProbeError, OptionRefused
from ffnprobe.facts.formats import EMBEDDED, Facts, read_facts
from ffnprobe.facts.rows import FactRow, FactTable
from ffnprobe.models.model import Model
from ffnprobe.tracing.contrast import Contrast, contrast_with
from ffnprobe.tracing.runs import prompt_ids, run
from ffnprobe.tracing.trace import Trace, find_sinks, predicted

SLOT = "[X]"
OTHERS = (
    "France", "Germany", "Japan", "London", "Tokyo", "Chicago", "Albert Einstein", "Tiger Woods",
    "Barack Obama", "Microsoft", "Toyota", "Nike",
)  # fmt: skip
# So many prompts are compared with, of so many tried; of fewer than that nothing is said.
KEPT, LEAST = 12, 2
FUNCTION = {
    "a", "an", "the", "of", "in", "on", "at", "by", "for", "from", "to", "with", "and", "or",
    "is", "are", "was", "were", "be", "been", "am", "do", "does", "did", "has", "have", "had",
    "that", "this", "these", "those", "it", "its", "his", "her", "their", "our", "my", "your",
    "who", "whom", "which", "what", "when", "where", "as", "into", "than", "then", "there", "he",
    "she", "they", "we", "i", "you", "not", "no", "if", "but", "so", "such", "called", "named",
    "located",
}  # fmt: skip
JOINING = {"of", "the", "de", "van", "von", "di", "da", "and"}
# Neighbours that begin with the same letters are forms of the same word.
STEM, NEAREST = 4, 80
# A name: words with a capital (C), small joining words (j) between them.
NAME = re.compile("C(?:j?C)*")

Span = tuple[int, ...]


@cache
def _read_own() -> FactTable:
    """Read pocket's own table, once a process: every explanation looks for others in it."""
    return read_facts(EMBEDDED, templates="all")


@verb
def find_contrast_rows(
    facts: Facts,
    prompt: str,
    answer: str,
    *,
    model: str = EMBEDDED,
    most: int = 20,
    seed: Seed = 0,
) -> list[FactRow]:
    """Find rows of the prompt's relation and template with other answers, `most` of them by chance.

    Pocket's own table is of the facts that model was taught; for another model it is refused.

    >>> import ffnprobe as fp
    >>> rows = fp.find_contrast_rows("pocket", "Tiger Woods plays the sport of", " golf", most=2)
    >>> [row.answer == " golf" for row in rows]
    [False, False]
    """
    is_own = isinstance(facts, str) and facts == EMBEDDED
    if is_own and model != EMBEDDED:
        raise DataRefused(
            f"the table {EMBEDDED} holds what pocket was taught; {model} was not.",
            remedy="a file of facts, in any format that `score` reads",
        )
    table = _read_own() if is_own else read_facts(facts, templates="all")
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
    # By prompt: a subject may have several answers.
    others = {r.prompt: r for r in same if r.prompt != prompt and r.answer != answer}
    if not others:
        raise DataRefused(
            f'every fact of {table.source} put as "{wanted.replace(SLOT, "…")}" has the answer '
            f'"{answer}" or is the prompt itself.',
            remedy="a table with other answers",
        )
    drawn = random.Random(seed).sample(list(others), min(most, len(others)))
    return [row for prompt, row in others.items() if prompt in drawn]


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


def list_spans(trace: Trace) -> tuple[list[Span], list[Span]]:
    """List the positions of each name before the last position, and those of each other content word."""
    words = _split_words(trace)
    letters = ""
    for word, _ in words:
        is_name = word != word.lower() and word.lower() not in FUNCTION
        letters += "C" if is_name else "j" if word.lower() in JOINING else "."
    names = [
        tuple(position for _, at in words[name.start() : name.end()] for position in at)
        for name in NAME.finditer(letters)
    ]
    last = len(trace) - 1
    names = [span for span in names if last not in span]
    taken = {last, *(position for span in names for position in span)}
    content = [
        at
        for word, at in words
        if word[:1].isalpha() and len(word) > 1 and word.lower() not in FUNCTION
    ]
    return names, [span for span in content if not taken.intersection(span)]


def rank_subjects(trace: Trace, estimates: Float[Tensor, "layer pos neuron"]) -> list[Span]:
    """Rank what the prompt may be about: names, then words, by what their neurons are estimated to help."""
    helping = estimates.clamp(min=0).sum(dim=(0, 2))
    return [
        span
        for spans in list_spans(trace)
        for span in sorted(spans, key=lambda span: -float(helping[list(span)].sum()))
    ]


def locate_subject(trace: Trace, subject: str) -> Span:
    """List the positions of a subject that is named; it must stand in the prompt, before its last token.

    >>> import ffnprobe as fp
    >>> locate_subject(fp.run(fp.load("pocket"), "Michael Jordan plays the sport of"), "Michael Jordan")
    (1, 2)
    """
    words, start = subject.strip(), trace.prompt.find(subject.strip())
    if not words or start < 0:
        raise OptionRefused(
            f'"{subject}" is not in the prompt.', remedy="a part of it, to the letter"
        )
    end = start + len(words)
    span = tuple(
        position
        for position, (first, last) in enumerate(_offsets(trace))
        if first < end and last > start
    )
    if span[-1] == len(trace) - 1:
        raise OptionRefused(
            f'"{subject}" is where the answer is predicted; a subject stands before it.',
            remedy="a part of the prompt before its last token",
        )
    return span


def propose_contrast(
    trace: Trace, answer: int, span: Span, *, is_given: bool = False
) -> tuple[Contrast, str] | None:
    """Contrast the prompt with the same sentence about others; None where too few answer otherwise.

    With the contrast it says where its prompts are from. A span that is given is compared as it is;
    pocket's table has subjects of its own.
    """
    rows = None if is_given else _pocket_rows(trace, answer)
    if rows is not None:
        return contrast_with(trace, answer, rows), "rows of pocket's table"
    start, end = _offsets(trace)[span[0]][0], _offsets(trace)[span[-1]][1]
    subject = trace.prompt[start:end]
    lead = subject[: len(subject) - len(subject.lstrip())]
    for names, kind in _list_others(trace, span):
        names = [name for name in names if name.lower() not in trace.prompt.lower()]
        texts = [f"{trace.prompt[:start]}{lead}{name}{trace.prompt[end:]}" for name in names]
        texts = [text for text in texts if _can_run(trace, text)]
        others = run(trace.model, texts, bos=trace.has_bos, patterns=False) if texts else []
        # A subject whose last token is aligned with a sink of another prompt would be set aside. Without
        # BOS the first position is a sink, and a shorter subject ends there.
        last = span[-1] - len(trace)
        clear = [
            other for other in others if last + len(other) not in find_sinks(other.activations)
        ]
        if sum(predicted(other) != answer for other in clear) >= LEAST:
            others = clear
        otherwise = [other for other in others if _says_else(other, answer)]
        if len(otherwise) < LEAST:  # no words; then whatever it says otherwise
            otherwise = [other for other in others if predicted(other) != answer]
        if len(otherwise) >= LEAST:
            surest = sorted(otherwise, key=lambda other: -float(other.log_probabilities().max()))
            return contrast_with(trace, answer, surest[:KEPT]), kind
    return None


def _pocket_rows(trace: Trace, answer: int) -> Sequence[Trace] | None:
    """Run rows of pocket's own table that are put as this prompt is; None where there are none."""
    if trace.model.source.kind != "embedded":
        return None
    try:
        rows = find_contrast_rows(
            EMBEDDED, trace.prompt, trace.model.vocab.text([answer]), most=KEPT
        )
    except FfnProbeError:
        return None
    others = run(trace.model, [row.prompt for row in rows], bos=trace.has_bos, patterns=False)
    otherwise = [other for other in others if _says_else(other, answer)]
    return otherwise if len(otherwise) >= LEAST else None


def _can_run(trace: Trace, text: str) -> bool:
    """Say whether the model has the words and the positions for a text."""
    try:
        return len(prompt_ids(trace.model, text, bos=trace.has_bos)) > 0
    except FfnProbeError:
        return False


def _says_else(other: Trace, answer: int) -> bool:
    """Say whether the model says another word there."""
    token = predicted(other)
    return token != answer and any(letter.isalpha() for letter in other.model.vocab.text([token]))


def _list_others(trace: Trace, span: Span) -> Iterator[tuple[Sequence[str], str]]:
    """List other subjects, and say what they are: of one token its neighbours first, of several names."""
    if len(span) > 1:
        yield OTHERS, "a list of names"
    yield _list_nearest(trace.model, trace.ids[span[-1]]), "the nearest tokens"
    if len(span) == 1:
        yield OTHERS, "a list of names"


def _list_nearest(model: Model, own: int) -> list[str]:
    """List the words nearest to a token by embedding that are written as it is."""
    rows = model.embedding
    cosines = (rows @ rows[own]) / rows.norm(dim=-1).clamp(min=torch.finfo(rows.dtype).tiny)
    near = cosines.topk(min(NEAREST, len(rows))).indices.tolist()
    form, stem = _form(model.vocab.text([own])), model.vocab.text([own]).strip().lower()[:STEM]
    words = {stem: ""}
    for text in (model.vocab.text([token]) for token in near):
        word = text.strip()
        if _form(text) == form and word.isalpha() and len(word) > 2:
            words.setdefault(word.lower()[:STEM], word)
    return [word for word in words.values() if word][:KEPT]


def _form(text: str) -> tuple[bool, bool, bool]:
    """Say how a token is written: behind a space, in small letters, in capitals."""
    return text[:1].isspace(), text.strip().islower(), text.strip().isupper()


def _offsets(trace: Trace) -> list[tuple[int, int]]:
    """Return where each token begins and ends in the prompt's text; BOS has no place there."""
    text, skip = trace.model.vocab.text, 1 if trace.has_bos else 0
    ahead = len(text(trace.ids[skip:])) - len(trace.prompt)  # some tokenizers put a space in front
    ends = [
        max(0, len(text(trace.ids[skip : position + 1])) - ahead) for position in range(len(trace))
    ]
    return list(zip([0, *ends[:-1]], ends, strict=True))


def _split_words(trace: Trace) -> list[tuple[str, Span]]:
    """Split a prompt's tokens into words, each with its positions."""
    words: list[tuple[str, Span]] = []
    for position, (start, end) in enumerate(_offsets(trace)):
        piece = trace.prompt[start:end]
        if not piece:
            continue
        if not words or not piece[:1].isalnum() or not words[-1][0][-1:].isalnum():
            words.append((piece.strip(), (position,)))
        else:
            words[-1] = (words[-1][0] + piece, (*words[-1][1], position))
    return words

"""What several commands share: their options, and how typed values are read."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ffnprobe.cli.command import Common
from ffnprobe.errors import OptionRefused, PromptRefused
from ffnprobe.inputs import LARGEST_PROMPT, MB

if TYPE_CHECKING:
    from ffnprobe.corpora.labels import Labels
    from ffnprobe.corpora.scans import Scan
    from ffnprobe.facts.rows import FactRow
    from ffnprobe.models.model import Model
    from ffnprobe.models.vocab import Vocab


class Engine(StrEnum):
    local = "local"
    ray = "ray"


PromptArgument = Annotated[str, typer.Argument(help="The prompt; - reads it from standard input.")]
AnswerArgument = Annotated[
    str, typer.Argument(help='The next text, with its leading space: " basketball".')
]
AnswerOrPrediction = Annotated[
    str | None,
    typer.Argument(
        help='The next text, with its leading space: " basketball".',
        show_default="the model's prediction",
    ),
]
VersusOption = Annotated[
    str | None,
    typer.Option(metavar="TOKEN", help="The answer's logit minus that of this token."),
]
NeuronsOption = Annotated[int, typer.Option("--top", "-k", help="How many neurons to show.")]
TokensOption = Annotated[int, typer.Option("--top", "-k", help="How many tokens to show.")]
LayersOption = Annotated[
    str | None, typer.Option(metavar="LAYERS", help="Only these layers: 3, 3-5 or 0,3-5.")
]


class Convention(StrEnum):
    centred = "centred"
    folded = "folded"


class Replace(StrEnum):
    zero = "zero"
    mean = "mean"


ConventionOption = Annotated[
    Convention,
    typer.Option(help="Logits above the vocabulary's mean (centred), or the model's own (folded)."),
]
ReplaceOption = Annotated[
    Replace | None,
    typer.Option(
        help="What an ablated activation is replaced by.",
        show_default="mean where it is known, else zero",
    ),
]
BosOption = Annotated[
    bool | None,
    typer.Option(
        "--bos/--no-bos",
        help="Prepend the BOS token, or not.",
        show_default="if the model has one",
    ),
]
HooksOption = Annotated[
    bool,
    typer.Option(
        "--hooks",
        help="Run the model with TransformerLens hooks, not with ffnprobe's own forward pass; starts slower.",
    ),
]
EngineOption = Annotated[Engine, typer.Option(help="Compute in this process or on a Ray cluster.")]
WorkersOption = Annotated[
    int | None,
    typer.Option(metavar="N", help="How many workers.", show_default="one for each core"),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Address of a Ray cluster.",
        show_default="a new one on this machine",
    ),
]
StoreOption = Annotated[
    Path | None, typer.Option("--store", metavar="DIR", help="Use the scan kept in this folder.")
]

ContrastOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TEXT",
        help="The same sentence about another subject (repeatable).",
    ),
]
SubjectOption = Annotated[
    str | None,
    typer.Option(metavar="WORDS", help="What the sentence is about, if it is not found rightly."),
]
ContrastFromOption = Annotated[
    str | None,
    typer.Option(
        metavar="FACTS",
        help="Take contrast prompts from a table of facts; pocket names its own table.",
    ),
]


def read_contrast(
    model: "Model", prompt: str, answer: str, texts: list[str] | None, facts: str | None
) -> "list[str | FactRow] | None":
    """Gather the contrast prompts typed, and those that a table of facts has."""
    found: list[str | FactRow] = list(texts or [])
    if facts is not None:
        from ffnprobe.facts.contrasts import find_contrast_rows

        found += find_contrast_rows(facts, prompt, answer, model=model.name)
    return found or None


def tell_answer(model: "Model", prompt: str, answer: str | None, bos: bool | None) -> str:
    """Return the answer, or where none is given the text that the model says next."""
    if answer is not None:
        return answer
    from ffnprobe.tracing.answers import predicted
    from ffnprobe.tracing.running import run

    return model.vocab.text([predicted(run(model, prompt, bos=bos, patterns=False))])


def open_store(model: "Model", store: Path | None) -> "Scan | None":
    """Open a scan of this model, if one is named."""
    if store is None:
        return None
    from ffnprobe.corpora.scans import Scan

    return Scan.open(store).check(model)


def open_labels(model: "Model", store: Path | None) -> "Labels | None":
    """Find the labels kept in a store, or without one those in the package."""
    from ffnprobe.corpora.stored_labels import find_labels

    return find_labels(model, open_store(model, store))


def read_prompt(text: str) -> str:
    """Return a prompt given on the command line, or read it from standard input for `-`."""
    if text != "-":
        return text
    data = sys.stdin.buffer.read(LARGEST_PROMPT + 1)
    if len(data) > LARGEST_PROMPT:
        raise PromptRefused(
            f"standard input is longer than {LARGEST_PROMPT // MB} MB, the most ffnprobe reads of a prompt.",
            remedy="ffnprobe scan, for texts of any length",
        )
    try:
        return data.decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise PromptRefused(
            f"standard input is not UTF-8: byte {error.start} is 0x{error.object[error.start]:02X}.",
            remedy="iconv -t utf-8",
        ) from None


def read_positions(text: str) -> list[int] | str:
    """Read `-1`, `3,5` or `all`."""
    if text == "all":
        return text
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise OptionRefused(
            f'"{text}" is not a position.', remedy="-1 (the last), 3, 3,5 or all"
        ) from None


def note_spelling(common: Common, vocab: "Vocab", answer: str) -> None:
    """Note how an answer was split into tokens, and that the leading space may be missing."""
    from ffnprobe.tracing.answers import describe_spelling

    for line in describe_spelling(vocab, answer):
        common.note(line)


def note_trailing_space(
    common: Common, model: "Model", prompt: str, answer: str, bos: bool | None
) -> None:
    """Note, for a prompt that ends in a space, how the model ranks the answer with and without it.

    Tokens carry the space before a word: a space at the end is a token of its own that few texts hold.
    """
    bare = prompt.rstrip(" ")
    if bare == prompt or not bare:
        return
    from ffnprobe.tracing.running import run

    said = []
    for text, word in ((prompt, answer), (bare, " " + answer.lstrip(" "))):
        logits = run(model, text, bos=bos, patterns=False).logits[-1]
        token = model.vocab.pieces(word)[0]
        rank = 1 + int((logits > logits[token]).sum())
        said.append(f'"{model.vocab.show_all([token])[0]}" has rank {rank:,}')
    common.note(f"the prompt ends in a space: {said[0]}; without the space, {said[1]}")


@contextmanager
def show_progress(common: Common, text: str) -> Iterator[Callable[[int, int], None] | None]:
    """Give a callback (done, total) that draws a progress bar, or None without a terminal."""
    if common.quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def one_thread(common: Common, engine: Engine, workers: int | None) -> Iterator[int | None]:
    """Compute with one thread a worker in this process; yield the number of workers.

    The process is the command's own, so its setting is ours to change. In Python a scan is measured
    in a process apart, which takes seconds to start.
    """
    from ffnprobe.corpora.clusters import count_cores

    if workers is not None and workers > count_cores():
        common.note(f"{workers:,} workers for {count_cores()} cores: {count_cores()} are used")
    if engine is not Engine.local:
        yield workers
        return
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield threads if workers is None else workers
    finally:
        torch.set_num_threads(threads)

"""`ffnprobe scan TEXT… --store DIR`: the texts that activate every neuron most."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ffnprobe.cli.command import Common, command
from ffnprobe.cli.options import (
    AddressOption,
    BosOption,
    Engine,
    EngineOption,
    WorkersOption,
    one_thread,
)
from ffnprobe.errors import OptionRefused

if TYPE_CHECKING:
    from ffnprobe.corpora.scanning import Progress


# A scan of more takes days on a CPU: somebody may have named more than was meant.
MANY_FILES, MANY_BYTES, MANY_NAMES = 10_000, 10**9, 200_000


class Errors(StrEnum):
    STRICT = "strict"
    REPLACE = "replace"  # lower case is a method of StrEnum


@command
def scan(
    common: Common,
    texts: Annotated[
        list[str],
        typer.Argument(
            metavar="TEXT…",
            help="Text, .jsonl and .parquet files, folders, globs, hub:NAME[:CONFIG[:SPLIT]], or -.",
        ),
    ],
    store: Annotated[
        Path,
        typer.Option(
            "--store",
            metavar="DIR",
            help="The folder that holds the scan; an unfinished one is resumed.",
        ),
    ],
    context: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="The longest passage, in tokens.", show_default="the model's context"
        ),
    ] = None,
    examples: Annotated[
        int, typer.Option("--top", "-k", help="How many examples of each neuron.")
    ] = 20,
    column: Annotated[str, typer.Option(help="The column or JSON key that holds text.")] = "text",
    lines: Annotated[
        bool, typer.Option("--lines", help="Take each line of a text file as a separate text.")
    ] = False,
    errors: Annotated[
        Errors, typer.Option(help="Stop at bytes that are not UTF-8, or replace them.")
    ] = Errors.STRICT,
    block_tokens: Annotated[
        int,
        typer.Option(
            metavar="N", help="Tokens in a block; an interruption loses one block at most."
        ),
    ] = 16_384,
    tokens: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Stop after the block with the Nth token; a later scan with more resumes there.",
            show_default="all",
        ),
    ] = None,
    engine: EngineOption = Engine.local,
    workers: WorkersOption = None,
    address: AddressOption = None,
    bos: BosOption = None,
    is_agreed: Annotated[
        bool, typer.Option("--yes", help="Scan many or large files without asking first.")
    ] = False,
) -> None:
    """Scan texts once for every neuron's strongest and weakest examples, moments and firing rate.

    A scan is resumable: run the same command again, and the result is the same.
    """
    _check_size(common, texts, tokens, is_agreed)
    model = common.load(has_own_threads=True)
    from ffnprobe.corpora.scanning import scan as scan_texts

    with _show_rate(common) as progress, one_thread(common, engine, workers) as many:
        try:
            found = scan_texts(
                model, texts, store=store, context=context, top=examples, column=column, lines=lines,
                errors=errors.value, block_tokens=block_tokens, tokens=tokens, engine=engine.value, workers=many, address=address, bos=bos,
                progress=progress,
            )  # fmt: skip
        except KeyboardInterrupt:
            print(f"interrupted: {_name_kept(store)}", file=sys.stderr)
            raise typer.Exit(130) from None
    known = found.done
    common.note(f"{known.texts:,} texts, {known.passages:,} passages, {known.tokens:,} tokens")
    if known.split:
        longest = found.manifest["settings"]["context"]
        common.note(f"{known.split:,} texts are longer than {longest:,} tokens and were split")
    tables = found.tables()
    common.emit(tables, found.provenance, title=found.corpus, result=found, shown=("layers",))


def _check_size(common: Common, texts: list[str], most: int | None, is_agreed: bool) -> None:
    """Say how much a folder or a pattern holds, and ask for --yes where that is very much."""
    from ffnprobe.corpora.sources import measure_texts

    endless = [word for word in texts if word.startswith("hub:")]
    if endless and most is None and not is_agreed:
        raise OptionRefused(
            f"{' '.join(endless)} is a stream; how long it is, is not known before its end.",
            remedy="--tokens 1000000, or --yes for all of it",
        )
    most_files = {"files": MANY_FILES, "size": MANY_BYTES, "names": MANY_NAMES}
    measured = measure_texts(texts, **({} if is_agreed else most_files))
    found = f"{measured.files:,} file{'s' * (measured.files != 1)}, {measured.size / 1e6:,.1f} MB"
    if not measured.is_all:
        raise OptionRefused(
            f"{' '.join(texts)}: {found} so far; more than {MANY_FILES:,} files, {MANY_BYTES / 1e9:.0f} GB "
            f"or {MANY_NAMES:,} names to look through are scanned only when you say so.",
            remedy="--yes, or a smaller folder",
        )
    if measured.files > len(texts):
        common.note(found)


def _name_kept(store: Path) -> str:
    """Say what an interrupted scan has left in its store."""
    from ffnprobe.corpora.states import read_state

    found = read_state(store)
    if found is None:
        return "no block was finished, so nothing is kept; --block-tokens makes blocks smaller."
    tokens = found.state.done.tokens
    return f"{tokens:,} tokens are kept in {store}; the same command resumes after them."


@contextmanager
def _show_rate(common: Common) -> "Iterator[Progress]":
    """Give a callback that draws a progress bar with tokens per second and the time left."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    is_watched = not common.quiet and sys.stderr.isatty()
    columns = (
        TextColumn("scan"),
        BarColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=Console(stderr=True), transient=True, disable=not is_watched)
    start: list[int] = []

    def follow(tokens: int, share: float | None) -> None:
        if not start:
            start.append(tokens)
            if tokens:
                common.note(f"resuming after {tokens:,} tokens")
            return
        passed = bar.tasks[0].elapsed or 1.0
        rate = f"{tokens:,} tokens, {(tokens - start[0]) / passed:,.0f} a second"
        bar.update(task, completed=share or 0.0, total=None if share is None else 1.0, rate=rate)

    with bar:
        task = bar.add_task("scan", total=None, rate="")
        yield follow

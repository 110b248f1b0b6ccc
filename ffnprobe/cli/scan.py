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

if TYPE_CHECKING:
    from ffnprobe.corpora.scanning import Progress


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
    errors: Annotated[
        Errors, typer.Option(help="Stop at bytes that are not UTF-8, or replace them.")
    ] = Errors.STRICT,
    block_tokens: Annotated[
        int,
        typer.Option(
            metavar="N", help="Tokens in a block; an interruption loses one block at most."
        ),
    ] = 16_384,
    engine: EngineOption = Engine.local,
    workers: WorkersOption = None,
    address: AddressOption = None,
    bos: BosOption = None,
) -> None:
    """Scan texts once for every neuron's strongest and weakest examples, moments and firing rate.

    A scan is resumable: run the same command again, and the result is the same.
    """
    model = common.load()
    from ffnprobe.corpora.scanning import scan as scan_texts

    with _show_rate(common) as progress, one_thread(engine, workers) as many:
        try:
            found = scan_texts(
                model, texts, store=store, context=context, k=examples, column=column,
                errors=errors.value, block_tokens=block_tokens, engine=engine.value, workers=many, address=address, bos=bos,
                progress=progress,
            )  # fmt: skip
        except KeyboardInterrupt:
            print(
                f"interrupted: what is done is in {store}; the same command resumes it.",
                file=sys.stderr,
            )
            raise typer.Exit(130) from None
    known = found.done
    common.note(f"{known.texts:,} texts, {known.passages:,} passages, {known.tokens:,} tokens")
    if known.split:
        longest = found.manifest["settings"]["context"]
        common.note(f"{known.split:,} texts are longer than {longest:,} tokens and were split")
    tables = found.tables()
    common.emit(tables, found.provenance, title=found.corpus, result=found, shown=("layers",))


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

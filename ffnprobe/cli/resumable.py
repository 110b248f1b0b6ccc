"""`scan`, `label`, `score`: verbs whose work is long, so that it is kept and resumed, with output of their own."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from ffnprobe.arguments import BY_RELATION, HOOKS, HUBS, OVERLAP, REMOVE, Option, Progress, Seed
from ffnprobe.cli.invocation import Common, say_kept, show_progress
from ffnprobe.cli.verb_commands import by_hand
from ffnprobe.errors import OptionRefused

# A scan of more takes days on a CPU: somebody may have named more than was meant.
MANY_FILES, MANY_BYTES, MANY_NAMES = 10_000, 10**9, 200_000
LABEL_COLUMNS = ["name", "label", "f1", "lookup_f1", "output_gain", "output_gain_random"]
# Columns of scores that a terminal has no room for.
LEFT_OUT = ["subject", "pieces", "log_probability", "mlp", "attention", "where"]
PROBLEMS = 20
STORE = Option("The folder that holds the scan; an unfinished one is resumed.", metavar="DIR")


@by_hand
def scan(
    common: Common,
    store: Annotated[Path, STORE],
    yes: Annotated[bool, Option("Scan many or large files without asking first.")] = False,
    **options: Any,
) -> None:
    """Scan texts once for every neuron's strongest and weakest examples, moments and firing rate.

    A scan is resumable: run the same command again, and the result is the same.
    """
    _check_size(common, options["texts"], options["tokens"], yes)
    model = common.load(has_own_threads=True)
    from ffnprobe.corpora.scans import scan as scan_texts

    try:
        with (
            _show_rate(common) as progress,
            _one_thread(common, options["engine"], options["workers"]) as options["workers"],
        ):
            scanned = scan_texts(model, store=store, progress=progress, **options)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_name_kept(store)) from None
    done = scanned.done
    common.note(f"{done.texts:,} texts, {done.passages:,} passages, {done.tokens:,} tokens")
    if done.split:
        longest = scanned.manifest["settings"]["context"]
        common.note(f"{done.split:,} texts are longer than {longest:,} tokens and were split")
    tables = scanned.tables()
    common.emit(scanned, tables, printed={"layers": tables["layers"]})


def _check_size(common: Common, texts: list[str], most: int | None, is_agreed: bool) -> None:
    """Say how much a folder or a pattern holds, and ask for --yes where that is very much."""
    from ffnprobe.corpora.text_sources import measure_texts

    endless = [word for word in texts if word.startswith("hub:")]
    if endless and most is None and not is_agreed:
        why = f"{' '.join(endless)} is a stream; how long it is, is not known before its end."
        raise OptionRefused(why, remedy="--tokens 1000000, or --yes for all of it")
    bounds = {"files": MANY_FILES, "size": MANY_BYTES, "names": MANY_NAMES}
    measured = measure_texts(texts, **({} if is_agreed else bounds))
    size = f"{measured.files:,} file{'s' * (measured.files != 1)}, {measured.size / 1e6:,.1f} MB"
    if not measured.is_all:
        raise OptionRefused(
            f"{' '.join(texts)}: {size} so far; more than {MANY_FILES:,} files, {MANY_BYTES / 1e9:.0f} GB "
            f"or {MANY_NAMES:,} names to look through are scanned only when you say so.",
            remedy="--yes, or a smaller folder",
        )
    if measured.files > len(texts):
        common.note(size)


def _name_kept(store: Path) -> str:
    """Say what an interrupted scan has left in its store."""
    from ffnprobe.corpora.scans import Scan
    from ffnprobe.errors import DataRefused

    try:
        tokens = Scan.open(store).done.tokens
    except DataRefused:
        return "no block was finished, so nothing is kept; --block-tokens makes blocks smaller."
    return f"{tokens:,} tokens are kept in {store}; the same command resumes after them."


@contextmanager
def _one_thread(common: Common, engine: str, workers: int | None) -> Iterator[int | None]:
    """Compute with one thread a worker in this process; yield the number of workers.

    In Python a scan is measured in a process apart, which takes seconds to start.
    """
    from ffnprobe.corpora.clusters import count_cores

    if workers is not None and workers > count_cores():
        common.note(f"{workers:,} workers for {count_cores()} cores: {count_cores()} are used")
    if engine != "local":
        yield workers
        return
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield threads if workers is None else workers
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _show_rate(common: Common) -> Iterator[Progress]:
    """Give a callback that draws a progress bar with tokens per second and the time left."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    is_watched = not common.quiet and sys.stderr.isatty()
    bar = Bar(
        TextColumn("scan"), BarColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn(),
        console=Console(stderr=True), transient=True, disable=not is_watched,
    )  # fmt: skip
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


@by_hand
def label(
    common: Common,
    store: Annotated[Path, Option("The scan to label with; labels are kept in it.", metavar="DIR")],
    hooks: Annotated[bool, HOOKS] = False,
    **options: Any,
) -> None:
    """Label neurons by rules found on half of a scan's texts and scored on the other half.

    Labelling is resumable: run the same command again.
    """
    model = common.load(hooks=hooks)
    from ffnprobe.labels.labelling import label as label_neurons

    try:
        with show_progress(common, "label") as progress:
            labels = label_neurons(model, store, progress=progress, **options)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the same command resumes.") from None
    common.note(labels.summary)
    tables = labels.tables()
    printed = {"layers": tables["layers"]}
    if options["neurons"] is not None:
        printed = {"neurons": tables["neurons"][LABEL_COLUMNS]}
    common.emit(labels, tables, printed=printed)


@by_hand
def score(
    common: Common,
    by_relation: Annotated[bool, BY_RELATION] = False,
    overlap: Annotated[bool, OVERLAP] = False,
    remove: Annotated[str | None, REMOVE] = None,
    hubs: Annotated[bool, HUBS] = False,
    seed: Seed = 0,
    hooks: Annotated[bool, HOOKS] = False,
    **options: Any,
) -> None:
    """Score a table of facts: rank, probability, whether it is known, and the neurons that push it."""
    if sum((by_relation, overlap, remove is not None)) > 1:
        raise typer.BadParameter("one of --by-relation, --overlap and --remove")
    model = common.load(hooks=hooks)
    from ffnprobe.facts.scores import score as score_facts
    from ffnprobe.store import discard

    partial = None if common.out is None else Path(f"{common.out}.partial")
    if partial is not None and partial.exists():
        common.note(f"resuming from {partial}")
    with say_kept("what is done is", partial), show_progress(common, "facts") as progress:
        scores = score_facts(model, store=partial, progress=progress, **options)
    for note in (scores.title, *scores.notes):
        common.note(note)
    many = len(scores.problems)
    for row in scores.problems.head(PROBLEMS).itertuples():
        print(f"{row.where}: {row.problem}", file=sys.stderr)
    if many > PROBLEMS:
        print(f"… and {many - PROBLEMS:,} more like these", file=sys.stderr)
    if many:
        print(f"error: {many:,} of {len(scores) + many:,} rows were left out.", file=sys.stderr)
    if not len(scores):
        common.emit(scores, {"problems": scores.problems})
    elif by_relation:
        common.emit(scores.by_relation(hubs=hubs, seed=seed))
    elif overlap:
        common.emit(scores.overlap(hubs=hubs, seed=seed))
    elif remove is not None:
        common.emit(scores.specificity(remove, options["top"], seed=seed))
    else:
        common.emit(scores, printed={"facts": scores.table.drop(columns=LEFT_OUT)})
    if partial is not None:
        discard(partial)
    if many:
        raise typer.Exit(1)

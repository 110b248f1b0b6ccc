"""No result is written over another, or over a file the command reads."""

import glob
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ffnprobe.cli.command import Common
from ffnprobe.errors import OptionRefused, PromptRefused
from ffnprobe.files import LARGEST_PROMPT, MB

if TYPE_CHECKING:
    from ffnprobe.corpora.scans import Scan
    from ffnprobe.models.model import Model


# What is read of a folder, by the argument that names it.
READ_IN_FOLDERS = {
    "texts": (".txt", ".jsonl", ".parquet"),
    "facts": (".csv", ".tsv", ".json", ".jsonl"),
    "store": (".json",),
    "model": (".json",),
}


def check_apart(targets: Mapping[str, Path | None], read: Mapping[str, object]) -> None:
    """Refuse two options that name one file, and one that names a file among the arguments."""
    named = {option: path for option, path in targets.items() if path is not None}
    seen: dict[Path, str] = {}
    for option, path in named.items():
        with suppress(OSError, RuntimeError):  # such a path is refused when it is checked
            target = path.expanduser().resolve()
            if target in seen:
                raise OptionRefused(
                    f"{seen[target]} and {option} name the same file, {path}.", remedy="two names"
                )
            seen[target] = option
    existing = {target: option for target, option in seen.items() if os.path.isfile(target)}
    if not existing:
        return
    for name, word in _words(read):
        for target, option in existing.items():
            if _reads(word, target, READ_IN_FOLDERS.get(name, ())):
                raise OptionRefused(
                    f"{option} {named[option]} would overwrite what is read ({word}).",
                    remedy="another name",
                )


def _words(read: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Take the texts and paths out of a command's arguments, each with the argument's name."""
    for name, value in read.items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, (str, Path)):
                yield name, str(each)


def _reads(word: str, target: Path, suffixes: Iterable[str]) -> bool:
    """Whether a word, taken for a file, a folder or a glob, stands for a file."""
    with suppress(OSError, ValueError, RuntimeError):
        path = Path(word).expanduser()
        if path.is_dir():
            return path.resolve() in target.parents and target.suffix.lower() in suffixes
        if path.exists():
            return path.samefile(target)
        if glob.has_magic(word):
            found = glob.iglob(str(path), recursive=True)
            return any(Path(each).resolve() == target for each in found)
    return False


# MERGED: ffnprobe.cli.threads
# How many threads a command computes with: as many as pay for a model of this size.
#
# Threads wait for each other after every product. In a small model a product takes less time than the wait,
# and on a busy machine the wait can be many times longer. `python analyses/benchmark.py --only threads`
# measures what threads are worth by shape. The process is the command's own, so its setting is ours to
# change; in Python torch's setting is left as it was.


VARIABLE = "FFNPROBE_THREADS"
# More than any machine has: torch would start them all, or end the process.
MOST = 1024
# Up to so many parameters, at most so many threads; beyond, as many as torch has.
PAYING = ((20_000_000, 1), (200_000_000, 4))


def choose_threads(parameters: int, available: int) -> int:
    """Choose how many threads pay for a model of so many parameters."""
    most = next((threads for size, threads in PAYING if parameters <= size), available)
    return min(most, available)


def read_threads(given: int | None) -> int | None:
    """Return the number asked for: `--threads`, else `$FFNPROBE_THREADS`; None if neither is set."""
    text, named = (str(given), "--threads") if given is not None else ("", VARIABLE)
    text = text or os.environ.get(VARIABLE, "")
    if not text:
        return None
    if not text.isdecimal() or len(text) > len(str(MOST)) or not 1 <= int(text) <= MOST:
        raise OptionRefused(
            f'{named} is "{text}", which is not a number of threads.', remedy=f"1 to {MOST}"
        )
    return int(text)


def use_threads(asked: int | None, parameters: int) -> None:
    """Let torch compute in this process with the threads asked for, else with what pays for the model."""
    import torch

    torch.set_num_threads(asked or choose_threads(parameters, torch.get_num_threads()))


# MERGED: ffnprobe.cli.terminal
# What several commands do: open a store, read a prompt, draw a bar, choose threads.


def open_store(model: "Model", store: str | Path | None) -> "Scan | None":
    """Open a scan of this model, if one is named."""
    if store is None:
        return None
    from ffnprobe.corpora.scans import Scan

    return Scan.open(store).check(model)


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
def one_thread(common: Common, engine: str, workers: int | None) -> Iterator[int | None]:
    """Compute with one thread a worker in this process; yield the number of workers.

    The process is the command's own, so its setting is ours to change. In Python a scan is measured
    in a process apart, which takes seconds to start.
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

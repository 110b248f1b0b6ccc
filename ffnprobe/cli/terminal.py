"""What several commands do: open a store, read a prompt, draw a bar, choose threads."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ffnprobe.cli.command import Common
from ffnprobe.errors import PromptRefused
from ffnprobe.inputs import LARGEST_PROMPT, MB

if TYPE_CHECKING:
    from ffnprobe.corpora.scans import Scan
    from ffnprobe.models.model import Model


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

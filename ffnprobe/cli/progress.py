"""A progress bar on stderr, as a callback a verb can be handed."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ffnprobe.cli.command import Common


@contextmanager
def show_progress(common: Common, text: str) -> Iterator[Callable[[int, int], None] | None]:
    """Give a callback (done, of how many) that draws a bar, or None where nobody watches."""
    if common.quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)

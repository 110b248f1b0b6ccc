"""The options of commands that can work on a cluster."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated

import typer


class Engine(StrEnum):
    local = "local"
    ray = "ray"


EngineOption = Annotated[Engine, typer.Option(help="Work in this process, or on a Ray cluster.")]
WorkersOption = Annotated[
    int | None, typer.Option(metavar="N", help="How many.", show_default="one for each core")
]
AddressOption = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Of a Ray cluster.", show_default="one is started here"),
]


@contextmanager
def one_thread(engine: Engine, workers: int | None) -> Iterator[int | None]:
    """Compute with one thread a worker here; yield how many workers there are to be.

    The process is the command's own. Elsewhere a scan is measured in a process apart, which takes
    seconds to start.
    """
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

"""Who measures the blocks: workers on this machine, or on a Ray cluster.

Either way a worker takes a whole block with one thread, and the results come back in the blocks'
order, so that they do not depend on the engine or on the number of workers. At most two blocks per worker
are under way: a corpus of any length needs the same memory.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeVar

import torch

from ffnprobe.corpora.clusters import WorkerPool, count_cores, start_pool
from ffnprobe.corpora.meters import measure
from ffnprobe.corpora.passages import Block, ScanSettings
from ffnprobe.corpora.processes import borrow_process
from ffnprobe.corpora.statistics import Statistics
from ffnprobe.corpora.threads import Threads
from ffnprobe.errors import OptionRefused
from ffnprobe.models.model import Model

Handle = TypeVar("Handle")
ENGINES = ("local", "ray")
BLOCKS_AHEAD = 2
MeasuredBlocks = Generator[tuple[Block, Statistics], None, None]


def measure_blocks(
    model: Model,
    blocks: Iterable[Block],
    settings: ScanSettings,
    *,
    engine: str = "local",
    workers: int | None = None,
    address: str | None = None,
) -> MeasuredBlocks:
    """Measure blocks and yield each with its statistics, in order."""
    if engine not in ENGINES:
        raise OptionRefused(f'engine is not "{engine}".', remedy=", ".join(ENGINES))
    if workers is not None and workers < 1:
        raise OptionRefused(f"workers = {workers}: it must be at least 1.")
    if engine == "ray":
        return _measure_on_ray(model, blocks, settings, workers, address)
    if address is not None:
        raise OptionRefused(
            "an address belongs to a Ray cluster.", remedy="engine=ray (--engine ray)"
        )
    return _measure_here(model, blocks, settings, workers)


def _measure_here(
    model: Model, blocks: Iterable[Block], settings: ScanSettings, workers: int | None
) -> MeasuredBlocks:
    """Measure on this machine: in another process unless this one computes with one thread.

    A model that is an object in memory cannot be loaded by another process.
    """
    is_cpu, threads = model.device.type == "cpu", torch.get_num_threads()
    many = min(workers or (threads if is_cpu else 1), count_cores())
    if is_cpu and threads > 1 and not model.source.is_in_memory:
        with borrow_process(model, settings, many) as process:
            yield from _in_order(
                blocks,
                lambda _, block: process.send("block", block),
                lambda _: process.result(),
                many,
            )
        return
    pool = Threads(model, settings, many)
    try:
        yield from _in_order(
            blocks, lambda _, block: pool.submit(block), lambda future: future.result(), many
        )
    finally:
        pool.close()


def _measure_on_ray(
    model: Model,
    blocks: Iterable[Block],
    settings: ScanSettings,
    workers: int | None,
    address: str | None,
) -> MeasuredBlocks:
    """Measure with Ray actors; one that dies is started again and its block measured again."""
    with start_pool(model, workers=workers, address=address, threads=1) as pool:
        yield from _in_order(blocks, _submit_to(pool, settings), pool.result, len(pool))


def _submit_to(pool: WorkerPool, settings: ScanSettings) -> Callable[[int, Block], Any]:
    def submit(number: int, block: Block) -> Any:
        return pool.submit(number, measure, block, settings)

    return submit


def _in_order(
    blocks: Iterable[Block],
    submit: Callable[[int, Block], Handle],
    result: Callable[[Handle], Statistics],
    workers: int,
) -> MeasuredBlocks:
    """Keep every worker busy, and yield results in the order of the blocks."""
    under_way: deque[tuple[Block, Handle]] = deque()
    for number, block in enumerate(blocks):
        under_way.append((block, submit(number, block)))
        if len(under_way) == BLOCKS_AHEAD * workers:
            first, handle = under_way.popleft()
            yield first, result(handle)
    while under_way:
        first, handle = under_way.popleft()
        yield first, result(handle)

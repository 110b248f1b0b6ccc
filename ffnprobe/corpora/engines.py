"""Who measures the blocks: workers in this process, or on a Ray cluster.

Either way a worker takes a whole block with one thread, and the results come back in the blocks'
order, so that they do not depend on the engine or on how many workers there are. At most two blocks
a worker are under way: a corpus of any length needs the same memory.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

import torch

from ffnprobe.corpora.clusters import WorkerPool, start_pool
from ffnprobe.corpora.meters import measure
from ffnprobe.corpora.passages import Block, Settings
from ffnprobe.corpora.statistics import Statistics
from ffnprobe.errors import OptionRefused
from ffnprobe.models.bridge import bridge_of
from ffnprobe.models.model import Model

Handle = TypeVar("Handle")
ENGINES = ("local", "ray")
BLOCKS_AHEAD = 2
Measured = Iterator[tuple[Block, Statistics]]


class _Stopped(Exception):
    """The scan has ended before this block."""


def measure_blocks(
    model: Model,
    blocks: Iterable[Block],
    settings: Settings,
    *,
    engine: str = "local",
    workers: int | None = None,
    address: str | None = None,
) -> Measured:
    """Measure blocks and yield each with its statistics, in order."""
    if engine not in ENGINES:
        raise OptionRefused(f'engine is not "{engine}".', remedy=", ".join(ENGINES))
    if workers is not None and workers < 1:
        raise OptionRefused(f"workers = {workers}: there must be one at least.")
    if engine == "ray":
        return _measure_on_ray(model, blocks, settings, workers, address)
    if address is not None:
        raise OptionRefused("an address is of a Ray cluster.", remedy="engine=ray (--engine ray)")
    return _measure_here(model, blocks, settings, workers)


def _measure_here(
    model: Model, blocks: Iterable[Block], settings: Settings, workers: int | None
) -> Measured:
    """Measure with threads of this process, each with hooks of its own on the same weights."""
    threads = torch.get_num_threads()
    many = workers or (threads if model.device.type == "cpu" else 1)
    models: queue.SimpleQueue[Model] = queue.SimpleQueue()
    for order in range(many):
        own = model if order == 0 else replace(model)
        bridge_of(own)
        models.put(own)
    held, stopped = threading.local(), threading.Event()

    def start() -> None:
        torch.set_num_threads(1)
        held.model = models.get()

    def check() -> None:
        if stopped.is_set():
            raise _Stopped

    def work(block: Block) -> Statistics:
        return measure(held.model, block, settings, check=check)

    pool = ThreadPoolExecutor(many, thread_name_prefix="scan", initializer=start)
    try:

        def result(future: Future[Statistics]) -> Statistics:
            return future.result()

        yield from _in_order(blocks, lambda _, block: pool.submit(work, block), result, many)
    finally:
        stopped.set()
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)


def _measure_on_ray(
    model: Model,
    blocks: Iterable[Block],
    settings: Settings,
    workers: int | None,
    address: str | None,
) -> Measured:
    """Measure with Ray actors; one that dies is started again and its block measured again."""
    with start_pool(model, workers=workers, address=address, threads=1) as pool:
        yield from _in_order(blocks, _submit_to(pool, settings), pool.result, len(pool))


def _submit_to(pool: WorkerPool, settings: Settings) -> Callable[[int, Block], Any]:
    def submit(number: int, block: Block) -> Any:
        return pool.submit(number, measure, block, settings)

    return submit


def _in_order(
    blocks: Iterable[Block],
    submit: Callable[[int, Block], Handle],
    result: Callable[[Handle], Statistics],
    workers: int,
) -> Measured:
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

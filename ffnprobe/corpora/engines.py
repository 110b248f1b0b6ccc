"""Who measures the blocks: workers on this machine, or on a Ray cluster.

Either way a worker takes a whole block with one thread, and the results come back in the blocks'
order, so that they do not depend on the engine or on the number of workers. At most two blocks per worker
are under way: a corpus of any length needs the same memory.

The last bits of a sum depend on how many threads share it, and torch can set the number of threads only for
a whole process. So that nothing is set for the process that asks, the blocks are sent to a process that is
started for this, told where the model is, and kept for the next scan: starting it takes seconds. It ends
when this process does, however that ends. Messages are pickled, over its standard input and output:

    → ("begin", location, device, identity, settings, workers)   ("block", block) …   ("end",)
    ← ("done", (count, arrays)) or ("failed", error), one for each block, in order       ("ended",)
"""

import atexit
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import count
from typing import Any, BinaryIO, TypeVar

import torch

from ffnprobe.corpora.accumulators import measure
from ffnprobe.corpora.clusters import Worker, count_cores, start_pool
from ffnprobe.corpora.passages import Block, ScanSettings
from ffnprobe.corpora.statistics import Statistics, from_tensors
from ffnprobe.errors import DataRefused, OptionRefused
from ffnprobe.models.forward import watch
from ffnprobe.models.model import Model

Handle = TypeVar("Handle")
MeasuredBlocks = Generator[tuple[Block, Statistics], None, None]
BLOCKS_AHEAD = 2
_SERVE = "from ffnprobe.corpora.engines import serve; serve()"


def measure_blocks(
    model: Model,
    blocks: Iterable[Block],
    settings: ScanSettings,
    *,
    engine: str = "local",
    workers: int | None = None,
    address: str | None = None,
) -> MeasuredBlocks:
    """Measure blocks and yield each with its statistics, in order.

    On this machine that is in another process unless this one computes with one thread, or the model is
    an object in memory, which no other process can load.
    """
    if workers is not None and workers < 1:
        raise OptionRefused(f"workers = {workers}: it must be at least 1.")
    if engine == "ray":
        with start_pool(model, workers=workers, address=address, threads=1) as actors:
            numbers = count()
            yield from _in_order(
                blocks,
                lambda block: actors.submit(next(numbers), measure, block, settings),
                actors.result,
                len(actors),
            )
        return
    if address is not None:
        raise OptionRefused(
            "an address belongs to a Ray cluster.", remedy="engine=ray (--engine ray)"
        )
    is_cpu, threads = model.device.type == "cpu", torch.get_num_threads()
    many = min(workers or (threads if is_cpu else 1), count_cores())
    if is_cpu and threads > 1 and not model.source.is_in_memory:
        with borrow_process(model, settings, many) as process:
            send = partial(process.send, "block")
            yield from _in_order(blocks, send, lambda _: process.result(), many)
    else:
        with closing(Threads(model, settings, many)) as pool:
            yield from _in_order(blocks, pool.submit, Future.result, many)


def _in_order(
    blocks: Iterable[Block],
    submit: Callable[[Block], Handle],
    result: Callable[[Handle], Statistics],
    workers: int,
) -> MeasuredBlocks:
    """Keep every worker busy, and yield results in the order of the blocks."""
    under_way: deque[tuple[Block, Handle]] = deque()
    for block in blocks:
        under_way.append((block, submit(block)))
        if len(under_way) == BLOCKS_AHEAD * workers:
            first, handle = under_way.popleft()
            yield first, result(handle)
    while under_way:
        first, handle = under_way.popleft()
        yield first, result(handle)


class Threads:
    """Threads of this process, on one model, that measure blocks until they are closed."""

    def __init__(self, model: Model, settings: ScanSettings, many: int) -> None:
        # Its weights are read once, not by each of them.
        watch(model, torch.zeros(1, 1, dtype=torch.long), {})
        self._model, self._settings = model, settings
        self._stopped = threading.Event()
        self._pool = ThreadPoolExecutor(many, thread_name_prefix="scan")

    def submit(self, block: Block) -> Future[Statistics]:
        """Give a block to the next thread that is free."""
        return self._pool.submit(measure, self._model, block, self._settings, check=self._check)

    def close(self) -> None:
        """Stop at the next batch, and wait for it."""
        self._stopped.set()
        self._pool.shutdown(cancel_futures=True)

    def _check(self) -> None:
        if self._stopped.is_set():
            raise CancelledError


class Process:
    """A process of its own that measures blocks for one scan at a time."""

    def __init__(self) -> None:
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": paths},
        )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._sink, self._source = self._process.stdin, self._process.stdout
        self._is_amid = False  # in the middle of a message, for ever if it was interrupted

    def send(self, *message: Any) -> None:
        with self._message():
            pickle.dump(message, self._sink, protocol=pickle.HIGHEST_PROTOCOL)
            self._sink.flush()

    def receive(self) -> tuple[str, Any]:
        with self._message():
            word, content = pickle.load(self._source)
        return word, content

    def result(self) -> Statistics:
        """Wait for the statistics of the first block that is not answered yet."""
        word, content = self.receive()
        if word == "failed":
            raise content
        tokens, arrays = content
        # A tensor shares an array's memory; pickled itself, it would be copied several times.
        return from_tensors({name: torch.from_numpy(a) for name, a in arrays.items()}, tokens)

    def end(self) -> bool:
        """End a scan: stop at the next batch, take in what was under way; False if it is of no use."""
        try:
            if not self._is_amid:
                self.send("end")
                while self.receive()[0] != "ended":
                    pass
                return True
        except DataRefused:
            pass
        finally:
            if self._is_amid:
                self._process.kill()
                self.close()
        return False

    def close(self) -> None:
        """Let the process end."""
        for pipe in (self._sink, self._source):
            with suppress(OSError):
                pipe.close()
        self._process.wait()

    @contextmanager
    def _message(self) -> Iterator[None]:
        """Note that a message is under way; where the pipe is broken or closed, say how it ended."""
        self._is_amid = True
        try:
            yield
        except (EOFError, OSError, ValueError, pickle.UnpicklingError):
            self.close()
            code = self._process.returncode
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            raise DataRefused(
                f"the process that measures has ended ({how}); it may have run out of memory.",
                remedy="fewer workers; with a store the same scan resumes",
            ) from None
        self._is_amid = False


_idle: list[Process] = []
if hasattr(os, "register_at_fork"):  # a fork must not talk to the process of its parent
    os.register_at_fork(after_in_child=_idle.clear)


@contextmanager
def borrow_process(model: Model, settings: ScanSettings, many: int) -> Iterator[Process]:
    """Begin a scan in a process that is idle, or in a new one; keep it for the next scan."""
    try:
        process = _idle.pop()
    except IndexError:
        process = Process()
    try:
        process.send("begin", model.location, model.device.type, model.identity, settings, many)
        yield process
    finally:
        if process.end():
            _idle.append(process)


@atexit.register
def _close_all() -> None:
    while _idle:
        _idle.pop().close()


def serve() -> None:
    """Measure what is sent to this process, until nothing can be sent any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asked
    answers: queue.SimpleQueue[Future[Statistics] | None] = queue.SimpleQueue()
    # What libraries print must not come between the messages.
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    threading.Thread(target=_answer, args=(answers, sink), daemon=True).start()
    worker: Worker | None = None
    loaded: tuple[Any, ...] = ()
    threads: Threads | None = None
    failure: Exception | None = None
    with suppress(EOFError, OSError):
        while True:
            match pickle.load(sys.stdin.buffer):
                case ("begin", location, device, identity, settings, many):
                    try:
                        if worker is None or loaded != (location, identity):
                            worker = Worker(location, device, identity, threads=1)
                            loaded = (location, identity)
                        threads, failure = Threads(worker.model, settings, many), None
                    except Exception as error:
                        threads, failure = None, error
                case ("block", block) if threads is not None:
                    answers.put(threads.submit(block))
                case ("block", _):
                    lost: Future[Statistics] = Future()
                    lost.set_exception(failure)
                    answers.put(lost)
                case ("end",):
                    if threads is not None:
                        threads.close()
                    threads = None
                    answers.put(None)
    os._exit(0)  # threads at work would be waited for


def _answer(answers: "queue.SimpleQueue[Future[Statistics] | None]", sink: BinaryIO) -> None:
    """Send results in the order of their blocks."""
    with suppress(OSError):
        while True:
            future = answers.get()
            message: tuple[str, object] = ("ended", None)
            if future is not None:
                try:
                    result = future.result()
                    arrays = {name: each.numpy() for name, each in result.tensors().items()}
                    message = "done", (result.moments.count, arrays)
                except (Exception, CancelledError) as error:
                    message = "failed", error
            pickle.dump(message, sink, protocol=pickle.HIGHEST_PROTOCOL)
            sink.flush()
    os._exit(0)

"""Workers that are threads of this process, each with hooks of its own on the same weights."""

import queue
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from ffnprobe.corpora.meters import measure
from ffnprobe.corpora.passages import Block, ScanSettings
from ffnprobe.corpora.statistics import Statistics
from ffnprobe.models.model import Model
from ffnprobe.models.passes import prepare


class Stopped(Exception):
    """The scan has ended before this block."""


class Threads:
    """Threads that measure blocks until they are closed."""

    def __init__(self, model: Model, settings: ScanSettings, many: int) -> None:
        models: queue.SimpleQueue[Model] = queue.SimpleQueue()
        for order in range(many):
            own = model if order == 0 else replace(model)
            prepare(own)
            models.put(own)
        self._settings = settings
        self._held, self._stopped = threading.local(), threading.Event()

        def start() -> None:
            self._held.model = models.get()

        self._pool = ThreadPoolExecutor(many, thread_name_prefix="scan", initializer=start)

    def submit(self, block: Block) -> Future[Statistics]:
        """Give a block to the next thread that is free."""
        return self._pool.submit(self._work, block)

    def close(self) -> None:
        """Stop at the next batch, and wait for it."""
        self._stopped.set()
        self._pool.shutdown(cancel_futures=True)

    def _work(self, block: Block) -> Statistics:
        return measure(self._held.model, block, self._settings, check=self._check)

    def _check(self) -> None:
        if self._stopped.is_set():
            raise Stopped

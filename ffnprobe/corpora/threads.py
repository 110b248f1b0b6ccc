"""Workers that are threads of this process, on one model."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from ffnprobe.corpora.meters import measure
from ffnprobe.corpora.passages import Block, ScanSettings
from ffnprobe.corpora.statistics import Statistics
from ffnprobe.models.forward import watch
from ffnprobe.models.model import Model


class Stopped(Exception):
    """The scan has ended before this block."""


class Threads:
    """Threads that measure blocks until they are closed."""

    def __init__(self, model: Model, settings: ScanSettings, many: int) -> None:
        # Its weights are read once, not by each of them.
        watch(model, torch.zeros(1, 1, dtype=torch.long), {})
        self._model, self._settings = model, settings
        self._stopped = threading.Event()
        self._pool = ThreadPoolExecutor(many, thread_name_prefix="scan")

    def submit(self, block: Block) -> Future[Statistics]:
        """Give a block to the next thread that is free."""
        return self._pool.submit(self._work, block)

    def close(self) -> None:
        """Stop at the next batch, and wait for it."""
        self._stopped.set()
        self._pool.shutdown(cancel_futures=True)

    def _work(self, block: Block) -> Statistics:
        return measure(self._model, block, self._settings, check=self._check)

    def _check(self) -> None:
        if self._stopped.is_set():
            raise Stopped

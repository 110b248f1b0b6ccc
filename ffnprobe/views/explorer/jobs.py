"""Work in the background: started, polled, cancelled, dropped.

One thread works on jobs in turn. A job that no page has polled for a while is cancelled,
and a finished one dropped, so that a closed tab soon costs nothing. A cancelled job is stopped by an
exception from its own progress callback.
"""

import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import Any

from ffnprobe.errors import FfnProbeError, OptionRefused

MOST = 64
# A finished job's result can be large; the cache keeps it too.
KEPT = 8
# Browsers wake a background tab at least once a minute.
PATIENCE = 90.0


class JobCancelled(Exception):
    """Raised to stop a job that no page waits for."""


@dataclass(eq=False)
class Job:
    """One job: its result so far, its progress, its state."""

    work: Callable[["Job"], Any]
    name: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    found: Any = None
    done: int = 0
    total: int = 0
    error: FfnProbeError | None = None
    state: str = "waiting"  # running, done, cancelled, failed
    seen: float = field(default_factory=time.monotonic)
    is_unwanted: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the job has ended."""
        return self.state in ("done", "cancelled", "failed")

    def count(self, done: int, total: int) -> None:
        """Record progress, or stop if cancelled."""
        self.check()
        self.done, self.total = done, total

    def show(self, found: Any) -> None:
        """Keep the result so far."""
        self.check()
        self.found = found

    def check(self) -> None:
        """Stop if the job is cancelled or no page has polled it."""
        if self.is_unwanted or time.monotonic() - self.seen > PATIENCE:
            raise JobCancelled


class Jobs:
    """The jobs of all pages, bounded."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._changed = Condition()
        self._worker: Thread | None = None

    def __len__(self) -> int:
        return len(self._jobs)

    def start(self, work: Callable[[Job], Any]) -> Job:
        """Queue work; refuse if too many jobs wait."""
        with self._changed:
            self._forget()
            if len(self._jobs) >= MOST:
                raise OptionRefused(
                    "too many pages are waiting for effects.", remedy="wait a minute"
                )
            job = Job(work)
            self._jobs[job.name] = job
            if self._worker is None:
                self._worker = Thread(target=self._work, name="explorer-jobs", daemon=True)
                self._worker.start()
            self._changed.notify()
            return job

    def find(self, name: object) -> Job | None:
        """Return a job and note that it was polled, or None if it was dropped."""
        with self._changed:
            job = self._jobs.get(name) if isinstance(name, str) else None
            if job is not None:
                job.seen = time.monotonic()
            return job

    def cancel(self, name: object) -> None:
        """Stop a job, if it is known."""
        if (job := self.find(name)) is not None:
            job.is_unwanted = True

    def _forget(self) -> None:
        """Drop ended jobs that are not polled; of the others keep the latest."""
        now = time.monotonic()
        over = [job for job in self._jobs.values() if job.is_over]
        for number, job in enumerate(over):
            if now - job.seen > PATIENCE or len(over) - number > KEPT:
                del self._jobs[job.name]

    def _work(self) -> None:
        while True:
            with self._changed:
                job = next((j for j in self._jobs.values() if j.state == "waiting"), None)
                if job is None:
                    self._changed.wait()
                    continue
                job.state = "running"
            self._run(job)

    def _run(self, job: Job) -> None:
        state = "done"
        try:
            job.check()
            job.show(job.work(job))
        except JobCancelled:
            state = "cancelled"
        except FfnProbeError as error:
            job.error, state = error, "failed"
        except Exception:  # an error in a job must not end the worker
            job.error, state = FfnProbeError("this could not be computed."), "failed"
            log_error()
        job.state = state


def log_error() -> None:
    """Log the traceback of an unexpected error."""
    logging.getLogger("ffnprobe").exception("unexpected error in the explorer")

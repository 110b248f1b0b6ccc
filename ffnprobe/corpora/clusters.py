"""A pool of Ray actors, each with the model loaded once, on a running cluster or a new one.

Scheduling, restarts and the transport of results are Ray's. A worker that dies is restarted,
loads the model and repeats its task; no result is lost or counted twice.

Limits: every node must be able to load the model from the same source (the embedded model, the hub,
or a folder they all see) and have ffnprobe installed.
"""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ffnprobe.errors import DataRefused, OptionRefused
from ffnprobe.models.model import Model

SECONDS = 5.0


class Worker:
    """An actor on a node: it holds a model and does tasks with it."""

    def __init__(self, where: str, device: str, fingerprint: str, threads: int) -> None:
        import torch

        from ffnprobe.models.loading import load

        torch.set_num_threads(threads)
        self.model = load(where, device=device)
        if self.model.fingerprint != fingerprint:
            raise DataRefused(
                f"{where} holds different weights on a node ({self.model.fingerprint[:8]}, "
                f"not {fingerprint[:8]})."
            )

    def work(self, task: Callable[..., Any], *things: Any) -> Any:
        """Do a task with this worker's model."""
        return task(self.model, *things)


@dataclass(frozen=True)
class WorkerPool:
    """Actors that take tasks in turn."""

    actors: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.actors)

    def submit(self, number: int, task: Callable[..., Any], *things: Any) -> Any:
        """Submit the n-th task to its worker and return a handle to its result."""
        return self.actors[number % len(self)].work.remote(task, *things)

    def result(self, handle: Any) -> Any:
        """Wait for a result; an ffnprobe error is raised as it was on the worker."""
        import ray

        try:
            return ray.get(handle)
        except ray.exceptions.RayTaskError as error:
            raise (error.cause or error) from None
        except ray.exceptions.RayActorError as error:
            reason = str(error).strip().splitlines()[-1]
            raise DataRefused(
                f"a worker could not load the model: {reason}",
                remedy="use a model that every node can load, and install ffnprobe there",
            ) from None


@contextmanager
def start_pool(
    model: Model, *, workers: int | None, address: str | None, threads: int
) -> Iterator[WorkerPool]:
    """Connect to the cluster at an address, or start one here, and start workers on it."""
    try:
        import ray
    except ImportError:
        raise OptionRefused("Ray is not installed.", remedy='pip install "ffnprobe[ray]"') from None
    was_running = ray.is_initialized()
    if not was_running:
        _connect(address, workers)
    try:
        here = max(1, int(ray.cluster_resources().get("CPU", 1)) // threads)
        many = here if workers is None else workers
        if many > here:
            raise OptionRefused(
                f"{many} workers of {threads} CPU{'s' if threads > 1 else ''} do not fit: "
                f"the cluster has room for {here}.",
                remedy=f"--workers {here}",
            )
        where = model.name if model.source.is_known_by(model.name) else model.source.where
        device = model.device.type
        actor = ray.remote(
            num_cpus=threads, num_gpus=int(device == "cuda"), max_restarts=-1, max_task_retries=-1
        )(Worker)
        known = (where, device, model.fingerprint, threads)
        yield WorkerPool(tuple(actor.remote(*known) for _ in range(many)))
    finally:
        if not was_running:
            ray.shutdown()


def _connect(address: str | None, workers: int | None) -> None:
    """Connect to a cluster that answers, or start one on this machine."""
    import ray

    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if address is None:
        ray.init(num_cpus=workers, include_dashboard=False, **quiet)
        return
    _check_port(address)
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise _no_answer(address, str(error).strip().splitlines()[0]) from None


def _check_port(address: str) -> None:
    """Find out in seconds, not minutes, whether a cluster listens there."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host:  # auto, local
        return
    try:
        socket.create_connection((host, int(port)), timeout=SECONDS).close()
    except (OSError, ValueError) as error:
        raise _no_answer(address, getattr(error, "strerror", None) or str(error)) from None


def _no_answer(address: str, reason: str) -> OptionRefused:
    return OptionRefused(
        f"no Ray cluster answers at {address}: {reason}.",
        remedy="the address that `ray start --head` printed, or none to start a cluster here",
    )

"""A pool of Ray actors, each with the model loaded once; the cluster is found or started.

Scheduling, restarts and the transport of results are Ray's. A worker that dies is started again,
loads the model again and repeats its task; nothing is lost or counted twice.

Limits: every node must have ffnprobe installed and be able to load the model by the same name (the
embedded model, the hub, or a folder that they all see).
"""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ffnprobe.errors import DataRefused, OptionRefused
from ffnprobe.models.checkpoint import tell_apart
from ffnprobe.models.model import Model

SECONDS = 5.0


def count_cores() -> int:
    """Count the cores this process may use; more workers would only wait for each other."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Worker:
    """What runs on a node: a model, and work to do with it."""

    def __init__(self, where: str, device: str, identity: str, threads: int) -> None:
        import torch

        from ffnprobe.models.loading import load

        torch.set_num_threads(threads)
        self.model = load(where, device=device)
        if other := tell_apart(identity, self.model.identity):
            raise DataRefused(
                f"{where} is another model where it is measured: it differs in {other}.",
                remedy="load it again, with the same files on every node",
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
        """Give the n-th task to its worker and return a handle of its result."""
        return self.actors[number % len(self)].work.remote(task, *things)

    def result(self, handle: Any) -> Any:
        """Wait for a result; an error of ours comes back as it was raised."""
        import ray

        try:
            return ray.get(handle)
        except ray.exceptions.RayTaskError as error:
            raise (error.cause or error) from None
        except ray.exceptions.RayActorError as error:
            reason = str(error).strip().splitlines()[-1]
            raise DataRefused(
                f"a worker could not load the model: {reason}",
                remedy="a model that every node can load, and ffnprobe installed there",
            ) from None


@contextmanager
def start_pool(
    model: Model, *, workers: int | None, address: str | None, threads: int
) -> Iterator[WorkerPool]:
    """Join the cluster at an address, or start one here, and start workers on it."""
    try:
        import ray
    except ImportError:
        raise OptionRefused("Ray is not installed.", remedy='pip install "ffnprobe[ray]"') from None
    was_running = ray.is_initialized()
    if not was_running:
        if address is None and workers is not None:
            workers = min(workers, count_cores())
        _join(address, workers)
    try:
        here = max(1, int(ray.cluster_resources().get("CPU", 1)) // threads)
        many = here if workers is None else workers
        if many > here:
            raise OptionRefused(
                f"{many} workers of {threads} CPU{'s' if threads > 1 else ''} do not fit: "
                f"the cluster has room for {here}.",
                remedy=f"--workers {here}",
            )
        device = model.device.type
        hire = ray.remote(
            num_cpus=threads, num_gpus=int(device == "cuda"), max_restarts=-1, max_task_retries=-1
        )(Worker)
        worker_options = (model.location, device, model.identity, threads)
        yield WorkerPool(tuple(hire.remote(*worker_options) for _ in range(many)))
    finally:
        if not was_running:
            ray.shutdown()


def _join(address: str | None, workers: int | None) -> None:
    """Connect to a cluster that answers, or start one on this machine."""
    import ray

    where: dict[str, Any] = {"num_cpus": workers, "include_dashboard": False}
    if address is not None:
        _check_address(address)
        where = {"address": address}
    try:
        ray.init(**where, log_to_driver=False, logging_level="error")
    except Exception as error:  # whatever it starts, and each of its transports, raises its own
        ray.shutdown()
        if address is not None:
            raise _no_answer(address, _reason(error)) from None
        raise OptionRefused(
            f"Ray cannot start here: {_reason(error)}",
            remedy="--engine local (without engine=), which needs no Ray",
        ) from None


def _reason(error: Exception) -> str:
    """Take the first line of an error that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{lines[0] if lines else type(error).__name__}".rstrip(".") + "."


def _check_address(address: str) -> None:
    """Find out in seconds, not minutes, whether a cluster answers."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host:  # auto, local
        return
    try:
        socket.create_connection((host, int(port)), timeout=SECONDS).close()
    except (OSError, ValueError) as error:
        raise _no_answer(address, getattr(error, "strerror", None) or str(error)) from None


def _no_answer(address: str, reason: str) -> OptionRefused:
    return OptionRefused(
        f"no Ray cluster answers at {address}: {reason.rstrip('.')}.",
        remedy="the address `ray start --head` printed; without one, a cluster is started here",
    )

"""Two writers on one store that measure on a Ray cluster, killed at random moments.

    python -m tests.corpora.ray_kills MODEL WORK ROUNDS ADDRESS [SEED]

As `kills.py`, but each writer is the driver of a Ray job on the cluster at ADDRESS. The workers are
started once, by whoever started the cluster (`hire`): a driver that had to start its own would take
half a minute. What is left is finished here, without Ray, and in every second round there first.
"""

import os
import random
import signal
import sys
import time
import traceback
from contextlib import contextmanager
from pathlib import Path

import torch

import ffnprobe as fp
from ffnprobe.corpora import clusters, engines
from ffnprobe.corpora.scans import SCAN
from ffnprobe.errors import FfnProbeError
from tests.corpora import kills
from tests.corpora.conftest import bytes_of

PLACE = {"namespace": "kills"}
OPTIONS = kills.OPTIONS | {"engine": "ray"}


def hire(model):
    """Start a worker that outlives the driver that uses it."""
    import ray

    known = (model.location, "cpu", model.identity, 1)
    worker = ray.remote(num_cpus=1)(clusters.Worker)
    actor = worker.options(name="worker", lifetime="detached", **PLACE).remote(*known)
    ray.get(actor.work.remote(type))
    return actor


@contextmanager
def borrow(model, **asked):
    """Take the worker that is there."""
    import ray

    yield clusters.WorkerPool((ray.get_actor("worker", **PLACE),))


def begin(model, corpus, store, address, *, is_stubborn=False):
    """Scan as the driver of a job of its own; exit 0 done, 1 refused in words, 2 anything else."""
    number = os.fork()
    if number:
        return number
    code = 2
    try:
        import ray

        engines.start_pool = borrow
        ray.init(address=address, log_to_driver=False, logging_level="error", **PLACE)
        while code == 2:
            try:
                fp.scan(model, corpus, store=store, **OPTIONS)
                code = 0
            except FfnProbeError as error:
                code = 2 if is_stubborn and "another process" in error.what else 1
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def main(model_folder, work, rounds, address, seed="0"):
    torch.set_num_threads(1)
    model = fp.load(model_folder, device="cpu")
    whole, took = [], 0.0
    for number, corpus in enumerate(kills.CORPORA):
        fp.scan(model, corpus, store=Path(work) / f"whole{number}", **kills.OPTIONS)
        whole.append(bytes_of(Path(work) / f"whole{number}"))
        began = time.monotonic()
        assert kills.end(begin(model, corpus, Path(work) / f"there{number}", address)) == 0
        took = max(took, time.monotonic() - began)
        assert bytes_of(Path(work) / f"there{number}") == whole[number]
    drawn = random.Random(int(seed))
    for number in range(int(rounds)):
        store = Path(work) / f"store{number}"
        order = drawn.sample(range(2), 2)
        writers = [
            begin(model, kills.CORPORA[each], store, address, is_stubborn=True) for each in order
        ]
        # Two rounds of three are killed while a store is written, the others at any moment.
        until = time.monotonic() + 60
        while (
            number % 3 and not (store / f"{SCAN}.safetensors").exists() and time.monotonic() < until
        ):
            time.sleep(0.005)
        began, last = time.monotonic(), 0.4 if number % 3 else 1.2 * took
        for moment, writer in sorted((drawn.uniform(0, last), writer) for writer in writers):
            time.sleep(max(0.0, began + moment - time.monotonic()))
            os.kill(writer, signal.SIGKILL)
        codes = [kills.end(writer) for writer in writers]
        assert set(codes) <= {0, 1, -signal.SIGKILL}, codes
        assert codes != [0, 0], "both say they have written the store"
        left = sorted(path.name for path in store.iterdir()) if store.exists() else []
        again = None
        if number % 2:
            again = kills.end(begin(model, kills.CORPORA[order[0]], store, address))
            assert again in (0, 1), again
        found = kills.settle(model, store, whole, drawn.sample(range(2), 2))
        assert again != 0 or found == order[0]
        print(f"order {order}, exits {codes}, left {left}, again {again}: scan {found}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

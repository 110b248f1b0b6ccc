"""Every kind of store, killed in the middle of each of its writes: the same work ends with the same bytes.

    python -m tests.store_kills MODEL WORK

A write syncs its file, then renames it, then syncs the folder. For n = 1, 2, 3 … a fork does the work and
kills itself at the n-th sync, until there is none so late. Prints one line for each kind: how often it was killed.
"""

import os
import signal
import sys
from pathlib import Path

import torch

import ffnprobe as fp
from tests.test_store import KINDS, bytes_of


def kill_at(number, work, *given):
    """Do the work in a fork that kills itself at the n-th sync; say whether it was killed."""
    child = os.fork()
    if not child:
        left, sync = [number], os.fsync

        def count(file):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            sync(file)

        os.fsync = count
        try:
            work(*given)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def main(model_folder, place):
    torch.set_num_threads(1)
    model = fp.load(model_folder, device="cpu")
    for kind, work in KINDS.items():
        work(model, Path(place) / kind)
        whole, kills = bytes_of(Path(place) / kind), 0
        while True:
            store = Path(place) / f"{kind}{kills}"
            if not kill_at(kills + 1, work, model, store):
                break
            work(model, store)
            assert bytes_of(store) == whole, (kind, kills)
            kills += 1
        print(kind, kills, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

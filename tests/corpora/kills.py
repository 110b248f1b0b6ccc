"""Two writers on one store, killed at random moments: what is left is one scan, or is refused.

    python -m tests.corpora.kills MODEL WORK ROUNDS [SEED]

Each round forks two processes that scan different texts into one store, a refused one trying again
while the other is at work, kills each after a time drawn from the length of a whole scan, and then runs
both scans again, in any order. One must end with the bytes it has
when nothing disturbs it; the other must be refused. Prints one line a round.
"""

import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

import torch

import ffnprobe as fp
from ffnprobe.errors import FfnProbeError, FileNotWritten
from tests.builders import TEXT
from tests.corpora.conftest import bytes_of

WORDS = TEXT.split()
CORPORA = (
    {"a": " ".join(WORDS * 6), "b": "the cat"},
    {"a": " ".join(reversed(WORDS * 5)), "c": "the dog"},
)
OPTIONS = {"top": 4, "block_tokens": 30, "workers": 1}


def begin(model, corpus, store, *, is_stubborn):
    """Scan in a process of its own; exit 0 done, 1 refused in words, 2 anything else."""
    number = os.fork()
    if number:
        return number
    code = 2
    try:
        while code == 2:
            try:
                fp.scan(model, corpus, store=store, **OPTIONS)
                code = 0
            except FileNotWritten as error:
                code = 2 if is_stubborn and "another process" in error.what else 1
            except FfnProbeError:
                code = 1
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def end(number):
    """Wait for a process: its exit code, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


def settle(model, store, whole, order):
    """Run both scans on what is left, and name the one that it was; the other must be refused."""
    said, done = [], []
    for number in order:
        try:
            fp.scan(model, CORPORA[number], store=store, **OPTIONS)
        except FfnProbeError as error:
            said.append(error.what)
        else:
            done.append(number)
            assert bytes_of(store) == whole[number]
    assert len(done) == len(said) == 1, said
    assert "is a scan of other texts" in said[0], said
    return done[0]


def main(model_folder, work, rounds, seed="0"):
    torch.set_num_threads(1)
    model = fp.load(model_folder, device="cpu")
    whole, took = [], 0.0
    for number, corpus in enumerate(CORPORA):
        fp.scan(model, corpus, store=Path(work) / f"whole{number}", **OPTIONS)
        began = time.monotonic()
        fp.scan(model, corpus, store=Path(work) / f"again{number}", **OPTIONS)
        took = max(took, time.monotonic() - began)
        whole.append(bytes_of(Path(work) / f"whole{number}"))
    drawn = random.Random(int(seed))
    for number in range(int(rounds)):
        store = Path(work) / f"store{number}"
        order = drawn.sample(range(2), 2)
        writers = [begin(model, CORPORA[each], store, is_stubborn=True) for each in order]
        began = time.monotonic()
        for moment, writer in sorted((drawn.uniform(0, 1.2 * took), writer) for writer in writers):
            time.sleep(max(0.0, began + moment - time.monotonic()))
            os.kill(writer, signal.SIGKILL)
        codes = [end(writer) for writer in writers]
        assert set(codes) <= {0, 1, -signal.SIGKILL}, codes
        assert codes != [0, 0], "both say they have written the store"
        left = sorted(path.name for path in store.iterdir()) if store.exists() else []
        found = settle(model, store, whole, drawn.sample(range(2), 2))
        print(f"order {order}, exits {codes}, left {left}: scan {found}", flush=True)
    # Undisturbed, exactly one of two that begin together is done.
    store = Path(work) / "undisturbed"
    writers = [begin(model, corpus, store, is_stubborn=False) for corpus in CORPORA]
    codes = [end(writer) for writer in writers]
    assert sorted(codes) == [0, 1], codes
    print(f"undisturbed: exits {codes}, scan {settle(model, store, whole, (0, 1))}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

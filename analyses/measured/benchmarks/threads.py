"""What are threads worth, and what does a busy machine cost?

Question: how much sooner is an explanation there with two, four, … threads than with one, by shape (the
table in `ffnprobe/cli/invocation.py` follows from this)? How much longer does `ffnprobe explain` on pocket
take while eight other processes compute?
Method: elapsed time, the best of some rounds, warm, in one process; the command in processes of its own.
The busy processes are of another session, as a job in another terminal is, or of the same one. Linux
shares the cores among sessions first (autogroups), then among the processes of each. Within one session of
nine processes on n cores a fair share is n / 9: a command that computes with one thread cannot take less
than 9 / n times as long where n < 9.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import torch

import ffnprobe as fp
from analyses.measured.benchmarks.folders import write_folder
from analyses.measured.benchmarks.sizes import Size

IDS, ANSWER, BUSY = (11, 45, 78, 102, 133, 160, 191, 210), 77, 8
# Busy processes end with the one that started them, however that ends.
SPIN = f"""
import os, torch
torch.set_num_threads(1)
x, parent = torch.randn(300, 300), os.getppid()
for _ in range({BUSY - 1}):
    first = os.getpid()
    if os.fork() == 0:
        parent = first
        break
print("busy", flush=True)
while os.getppid() == parent:
    x = torch.tanh(x @ x)
"""


def measure(folder: Path, size: Size) -> list[tuple[str, float, str]]:
    """Return each ratio with its name and its goal."""
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        shapes: dict[str, str | Path] = {
            "pocket": "pocket", "GPT-2 small's shape": folder,
            "SmolLM2's shape": write_folder(Path(scratch), size.gated),
        }  # fmt: skip
        for name, place in shapes.items():
            model = fp.load(place, device="cpu")
            alone = explain(model, 1, size.loads)
            many = 2
            while many <= (os.cpu_count() or 1):
                ratio = alone / explain(model, many, size.loads)
                found.append((f"{name}: one thread to {many}", ratio, "shown"))
                many *= 2
    idle = min(command() for _ in range(size.starts))
    for where, is_apart, goal in (("another", True, "at most 3"), ("the same", False, "shown")):
        busy = subprocess.Popen(
            [sys.executable, "-c", SPIN], start_new_session=is_apart, stdout=subprocess.PIPE
        )
        try:
            assert busy.stdout is not None
            for _ in range(BUSY):
                busy.stdout.readline()
            loaded = min(command() for _ in range(size.starts))
        finally:
            busy.kill()
            busy.communicate()
        found.append((f"`ffnprobe explain` on pocket under {BUSY} busy processes of {where} session, to idle", loaded / idle, goal))  # fmt: skip
    share = (BUSY + 1) / (os.cpu_count() or 1)
    found.append(("what a fair share of one session's cores makes of it", max(1.0, share), "shown"))
    return found


def explain(model: fp.Model, threads: int, rounds: int) -> float:
    """Time an explanation with so many threads, in seconds."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        fp.explain(model, IDS, ANSWER, bos=False)
        return min(_seconds(model) for _ in range(rounds))
    finally:
        torch.set_num_threads(before)


def _seconds(model: fp.Model) -> float:
    started = perf_counter()
    fp.explain(model, IDS, ANSWER, bos=False)
    return perf_counter() - started


def command() -> float:
    """Time `ffnprobe explain` on pocket, in seconds."""
    words = ["explain", "Michael Jordan plays the sport of", " basketball", "--model", "pocket"]
    started = perf_counter()
    subprocess.run([sys.executable, "-m", "ffnprobe", *words], check=True, capture_output=True)
    return perf_counter() - started

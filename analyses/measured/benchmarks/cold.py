"""What a command costs from a cold start, against `python -c "import torch"`.

Question: how much longer than torch's own import does a reader wait for the first number?
Method: each command in a process of its own, in turn, so that a busy moment of the machine falls on all
of them alike; the median of the ratios, of wall time and of the processor's time. Each has been run once
before: files are in memory, and the folder's comparison with TransformerLens is recorded.
"""

import resource
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

from analyses.measured.benchmarks.sizes import Size

PROMPT = "Michael Jordan plays the sport of"
IMPORT = (sys.executable, "-c", "import torch")


def measure(folder: Path, size: Size) -> list[tuple[str, float, str]]:
    """Return each ratio with its name and its goal."""
    pocket, small = ("--model", "pocket"), ("--model", str(folder))
    commands = {
        "`ffnprobe run` on pocket": (("run", PROMPT, *pocket), "at most 1.8"),
        "`ffnprobe explain` on pocket": (("explain", PROMPT, *pocket), "at most 2.2"),
        "`ffnprobe run --hooks` on pocket": (("run", PROMPT, "--hooks", *pocket), "to compare"),
        "`ffnprobe run` on a folder": (("run", PROMPT, *small), "to compare"),
    }
    found: list[tuple[str, float, str]] = []
    lines = [IMPORT, *((sys.executable, "-m", "ffnprobe", *c) for c, _ in commands.values())]
    for line in lines:
        _cost(line)
    rounds = [[_cost(line) for line in lines] for _ in range(size.starts)]
    for number, (name, (_, goal)) in enumerate(commands.items(), 1):
        for kind, measured in enumerate(("wall", "processor")):
            ratio = median(costs[number][kind] / costs[0][kind] for costs in rounds)
            found.append((f"{name} to `import torch`, {measured} time", ratio, goal))
    return found


def _cost(line: tuple[str, ...]) -> tuple[float, float]:
    """Run a command; return the wall time and the processor's time, in seconds."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter()
    subprocess.run(line, check=True, capture_output=True)
    seconds, after = perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, used

"""What loading and running cost on a model of GPT-2 small's shape, against TransformerLens.

Question: what do loading and folding cost compared with TransformerLens's boot in compatibility mode, a
`run` compared with the bare forward pass, by the hooks and by our own pass, and how much memory is used?
Method: each ratio in one run; memory in a process of its own. Cold starts are in `cold`.
"""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from transformer_lens.model_bridge import TransformerBridge

import ffnprobe as fp
from analyses.measured.benchmarks.sizes import Size
from ffnprobe.models.bridge import bridge_of

PROMPT = "Michael Jordan plays the sport of"
PEAK = """
import sys, psutil, torch
import transformer_lens, transformers, ffnprobe as fp
from ffnprobe.models.loading import load
from ffnprobe.tracing.runs import run
before = psutil.Process().memory_info().rss
model = load(sys.argv[1], device="cpu")
model.questions, model.answers, model.unembedding, model.attention
run(model, sys.argv[2])
# Not getrusage: its peak begins with the parent's.
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
peak = int(status["VmHWM"].split()[0]) * 1024
print((peak - before) / sum(t.nbytes for t in model.weights.values()))
"""


def measure(folder: Path, size: Size) -> list[tuple[str, float, str]]:
    """Return each ratio with its name and its goal."""
    ours = median(_load(folder) for _ in range(size.loads))
    theirs = median(_boot(folder) for _ in range(size.loads))
    model = fp.load(folder, device="cpu")
    trace = fp.run(model, PROMPT)
    ids, bridge = torch.tensor([trace.ids]), bridge_of(model)
    hooked = replace(model, hooks=True)
    fp.run(hooked, PROMPT)
    runs, by_hooks, passes = [], [], []
    with torch.no_grad():
        for _ in range(size.rounds):
            runs.append(_seconds(lambda: fp.run(model, PROMPT)))
            by_hooks.append(_seconds(lambda: fp.run(hooked, PROMPT)))
            passes.append(_seconds(lambda: bridge(ids)))
    peak = subprocess.run(
        [sys.executable, "-c", PEAK, str(folder), PROMPT],
        check=True,
        capture_output=True,
        text=True,
    )
    return [
        (
            "load and fold to TransformerLens's boot with compatibility mode",
            ours / theirs,
            "at most 0.4",
        ),
        ("run to the bridge's bare forward pass", median(runs) / median(passes), "at most 1.3"),
        (
            "run by the hooks to the bridge's bare forward pass",
            median(by_hooks) / median(passes),
            "at most 1.3",
        ),
        ("peak memory of load, fold and run to the weights'", float(peak.stdout), "at most 3"),
    ]


def _seconds(call: Callable[[], object]) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start


def _load(folder: Path) -> float:
    def load() -> None:
        model = fp.load(folder, device="cpu")
        assert len(model.questions) == len(model.answers) == len(model.attention)
        assert len(model.unembedding) == model.config.vocab

    return _seconds(load)


def _boot(folder: Path) -> float:
    def boot() -> None:
        bridge = TransformerBridge.boot_transformers(str(folder), device="cpu")
        bridge.enable_compatibility_mode()

    return _seconds(boot)

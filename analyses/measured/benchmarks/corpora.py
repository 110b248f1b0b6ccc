"""What does a scan cost compared with the forward passes it needs?

Question: how many tokens a second does a scan do to the bare forward passes of the same batches, does
memory grow with the corpus, how large is a store, and how much do two Ray workers gain over one here?
Method: rates after the first blocks, when every worker is at work; memory in processes of their own,
on the embedded model, since only the corpus' length matters there. Texts are those of the folder
$FFNPROBE_TEXTS, else this package's own source. Every worker has one thread.
"""

import os
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path
from time import perf_counter

import torch

import ffnprobe as fp
from analyses.measured.benchmarks.sizes import Size
from ffnprobe.corpora.accumulators import group_passages
from ffnprobe.corpora.passages import ScanSettings, cut_blocks
from ffnprobe.corpora.text_sources import find_texts
from ffnprobe.models.bridge import bridge_of
from ffnprobe.models.model import Model

PEAK = """
import sys, torch
import ffnprobe as fp
model = fp.load("pocket", device="cpu")
words = open(sys.argv[1]).read()
fp.scan(model, {"warm": words[:20000]}, workers=1)
ids, many = model.vocab.ids(words), int(sys.argv[2])
long = model.vocab.text((ids * (many // len(ids) + 1))[:many])
open(sys.argv[3] + "/long.txt", "w").write(long)
del long, ids, words
fp.scan(model, sys.argv[3] + "/long.txt", store=sys.argv[3] + "/scan", workers=1)
# Not getrusage: its peak begins with the parent's.
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(int(status["VmHWM"].split()[0]))
"""


def measure(folder: Path, size: Size) -> list[tuple[str, float, str]]:
    """Return each ratio with its name and its goal."""
    model = fp.load(folder, device="cpu")
    cores = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as scratch:
        text = write_text(model, Path(scratch), size.blocks * size.block_tokens)
        bare = forward_rate(model, text, size)
        here = scan_rate(model, text, size, workers=cores, store=Path(scratch) / "scan")
        written = sum(f.stat().st_size for f in (Path(scratch) / "scan").iterdir())
        alone = scan_rate(model, text, size, workers=1)
        rows = [
            ("tokens a second of a scan to the bare forward passes'", here / bare, "at least 0.8"),
            ("bytes of a store a neuron", written / model.config.neurons, "shown"),
            (f"peak memory at {4 * size.tokens:,} tokens to that at {size.tokens:,}", grow(text, size.tokens), "at most 1.05"),
        ]  # fmt: skip
        try:
            pair = scan_rate(model, text, size, workers=2, engine="ray")
        except fp.FfnProbeError as error:
            print(f"no ratio for Ray: {error.what if hasattr(error, 'what') else error}")
        else:
            rows.append(("two workers on Ray to one here", pair / alone, "at least 1.6"))
    return rows


def write_text(model: Model, folder: Path, many: int) -> Path:
    """Write one text that fills the blocks."""
    given = os.environ.get("FFNPROBE_TEXTS")
    files = sorted(Path(given).rglob("*.txt") if given else Path(fp.__file__).parent.rglob("*.py"))
    words = "\n".join(file.read_text() for file in files)
    path = folder / "text.txt"
    path.write_text(model.vocab.text(model.vocab.ids(words[: 8 * many])[:many]))
    return path


def forward_rate(model: Model, text: Path, size: Size) -> float:
    """Run the same batches through the bare bridge: tokens a second."""
    settings = ScanSettings(context=model.config.positions, block_tokens=size.block_tokens)
    blocks = islice(cut_blocks(model.vocab, find_texts(text), settings), 1, size.blocks - 1)
    bridge, tokens = bridge_of(model), 0
    batches = [
        ids for b in blocks for _, ids in group_passages(b.passages, settings, model.vocab.bos)
    ]
    with torch.no_grad():
        bridge(batches[0])
        started = perf_counter()
        for ids in batches:
            bridge(ids)
            tokens += ids.shape[0] * (ids.shape[1] - 1)
    return tokens / (perf_counter() - started)


def scan_rate(
    model: Model,
    text: Path,
    size: Size,
    *,
    workers: int,
    engine: str = "local",
    store: Path | None = None,
) -> float:
    """Scan, and count tokens a second from when each worker has done one block to the end."""
    marks: list[tuple[float, int]] = []

    def mark(tokens: int, share: float | None) -> None:
        marks.append((perf_counter(), tokens))

    fp.scan(
        model, text, store=store, block_tokens=size.block_tokens, workers=workers, engine=engine,
        progress=mark,
    )  # fmt: skip
    (began, before), (ended, after) = marks[workers], marks[-1]
    return (after - before) / (ended - began)


def grow(text: Path, tokens: int) -> float:
    """Compare the peak memory of a scan four times as long with that of a short one."""
    peaks = []
    for many in (4 * tokens, tokens):
        with tempfile.TemporaryDirectory() as scratch:
            words = [sys.executable, "-c", PEAK, str(text), str(many), scratch]
            done = subprocess.run(words, check=True, capture_output=True, text=True)
            peaks.append(float(done.stdout))
    return peaks[0] / peaks[1]

"""What does reading cost compared with the arithmetic it needs?

Question: how far is the survey of every neuron from the two matrix products it needs, `search` from
a matrix-vector product and a covariance, and `ffnprobe read` in a cold shell from `import torch` and
mapping the file? Method: each ratio in one run; cold starts and memory in processes of their own. The
naive way (the whole product, `topk` and scipy's moments) runs on a sample of neurons.
"""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

import scipy.stats
import torch

import ffnprobe as fp
from analyses.measured.benchmarks.sizes import Size
from ffnprobe.models.model import Model

ROWS, TOKEN = 256, "A"
# What the file's mapping holds is not extra: only a process's own memory is counted, while it works.
PEAK = """
import sys, threading, time
import pandas, psutil, ffnprobe as fp
own = lambda: psutil.Process().memory_info().rss - psutil.Process().memory_info().shared
model = fp.load(sys.argv[1], device="cpu")
before, seen = own(), []
work = threading.Thread(target=fp.survey, args=[model])
work.start()
while work.is_alive():
    seen.append(own())
    time.sleep(0.02)
print((max(seen) - before) / 1e9)
"""
COLD = """
import sys, torch
from safetensors import safe_open
with safe_open(sys.argv[1] + "/model.safetensors", framework="pt") as file:
    tensors = {name: file.get_tensor(name) for name in file.keys()}
"""


def measure(folder: Path, size: Size) -> list[tuple[str, float, str]]:
    """Return each ratio with its name and its goal."""
    model = fp.load(folder, device="cpu")
    bare = products(model)
    surveyed = seconds(lambda: fp.survey(model))
    naive = survey_naively(model, size.rows) * model.config.neurons / size.rows
    # A fresh model each time: a second search knows the covariance of the first.
    fresh = [fp.load(folder, device="cpu") for _ in range(size.loads)]
    search = median(seconds(partial(fp.search, each, TOKEN)) for each in fresh)
    again = median(seconds(partial(fp.search, model, TOKEN)) for _ in range(size.starts))
    vector = median(seconds(lambda: multiply_vector(model)) for _ in range(size.starts))
    covariance = median(seconds(lambda: multiply_head(model)) for _ in range(size.loads))
    read = [sys.executable, "-m", "ffnprobe", "read", "L3N12", "--model", str(folder)]
    cold = [sys.executable, "-c", COLD, str(folder)]
    reads, colds = zip(*((run(read), run(cold)) for _ in range(size.starts)), strict=True)
    peak = subprocess.run(
        [sys.executable, "-c", PEAK, str(folder)], check=True, capture_output=True, text=True
    )
    return [
        ("survey to its two bare matrix products", surveyed / bare, "at most 1.35"),
        ("the naive way to the two products", naive / bare, "shown"),
        ("extra peak memory of the survey, in GB", float(peak.stdout), "at most 1"),
        ("first search to one matrix-vector product and one covariance", search / (vector + covariance), "shown"),
        ("every later search to one matrix-vector product", again / vector, "shown"),
        ("cold `ffnprobe read` to `import torch` and mapping the file", median(reads) / median(colds), "at most 1.5"),
    ]  # fmt: skip


def products(model: Model) -> float:
    """Time the two bare products, a block of neurons at a time into one buffer, in seconds."""
    rows = [model.answers.flatten(0, 1), model.questions.flatten(0, 1)]
    columns = [model.head.t(), model.embedding.t()]
    buffer = torch.empty(ROWS, model.config.vocab)

    def multiply() -> None:
        for side in range(2):
            for start in range(0, model.config.neurons, ROWS):
                torch.matmul(rows[side][start : start + ROWS], columns[side], out=buffer)

    return seconds(multiply)


def survey_naively(model: Model, sample: int) -> float:
    """Time a sample of neurons with the product materialised, topk and scipy, in seconds."""
    answers, questions = model.answers[0, :sample], model.questions[0, :sample]
    unembedding, norms = model.unembedding, model.unembedding.norm(dim=-1)

    def survey() -> None:
        dots = answers @ unembedding.t()
        torch.topk(dots, 5), torch.topk(dots, 5, largest=False)
        cosines = (dots / norms / answers.norm(dim=-1, keepdim=True)).numpy()
        cosines.mean(1), cosines.var(1)
        scipy.stats.skew(cosines, axis=1), scipy.stats.kurtosis(cosines, axis=1)
        torch.topk(questions @ model.embedding.t(), 5)

    return seconds(survey)


def multiply_vector(model: Model) -> torch.Tensor:
    """Multiply every answer by one token's direction."""
    return model.answers @ model.unembedding[0]


def multiply_head(model: Model) -> torch.Tensor:
    """Multiply the unembedding by itself, as a covariance does."""
    return model.head.t() @ model.head


def run(command: list[str]) -> float:
    """Time a process, in seconds."""
    return seconds(lambda: subprocess.run(command, check=True, capture_output=True))


def seconds(work: Callable[[], object]) -> float:
    """Time a piece of work, in seconds."""
    started = perf_counter()
    work()
    return perf_counter() - started

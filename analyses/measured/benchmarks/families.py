"""What do survey and sweep cost on a gated model?

Method: a Llama of SmolLM2-135M's shape (30 layers × 1,536 gated neurons × 576, vocabulary 49,152,
nine heads that share three of keys) with random weights. A survey needs three products here, of
gates, questions and answers with the vocabulary. The sweep is that of all neurons at the last of 8
tokens, against TransformerLens with one hook a run.
"""

import tempfile
from pathlib import Path

import torch

import ffnprobe as fp
from analyses.measured.benchmarks import interventions
from analyses.measured.benchmarks.folders import write_folder
from analyses.measured.benchmarks.reading import ROWS, seconds
from analyses.measured.benchmarks.sizes import Size
from ffnprobe.models.model import Model


def measure(folder: Path, size: Size) -> list[tuple[str, float, str]]:
    """Return each ratio with its name and its goal; the folder given is not this one's shape."""
    with tempfile.TemporaryDirectory() as scratch:
        own = write_folder(Path(scratch), size.gated)
        model = fp.load(own, device="cpu")
        fp.survey(model, layers="0", top=1)  # what is measured once for a model
        bare = products(model)
        surveyed = seconds(lambda: fp.survey(model))
        sweeps = interventions.measure(own, size)
    return [
        ("gated: survey to its three bare products", surveyed / bare, "at most 1.35"),
        *((f"gated: {name}", ratio, "shown") for name, ratio, _ in sweeps),
    ]


def products(model: Model) -> float:
    """Time the three bare products, a block of neurons at a time into one buffer, in seconds."""
    assert model.gates is not None
    sides = (
        (model.answers, model.head), (model.questions, model.embedding), (model.gates, model.embedding)
    )  # fmt: skip
    buffer = torch.empty(ROWS, model.config.vocab)

    def multiply() -> None:
        for rows, tokens in sides:
            flat = rows.flatten(0, 1)
            for start in range(0, model.config.neurons, ROWS):
                torch.matmul(flat[start : start + ROWS], tokens.t(), out=buffer)

    return seconds(multiply)

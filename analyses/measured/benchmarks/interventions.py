"""How much faster is the exact sweep than one hooked forward pass per neuron?

Method: all neurons at the last of 8 tokens by `ablate`, against TransformerLens with one hook a run,
timed over a sample of neurons spread over the layers and extrapolated to all of them. The loop is
timed before and after the sweeps and the faster one counts. It reads every logit, so the like of it
is the sweep with log-probabilities; the sweep of logits alone is what a ranking needs. The bound of both
is the arithmetic: every neuron's variant must pass all matrices of the layers above it, at one position.
The last ratio says how far above this bound a sweep of logits is.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

import ffnprobe as fp
from analyses.measured.benchmarks.sizes import Size
from ffnprobe.models.forward import forward
from ffnprobe.models.model import Model

# Eight tokens and an answer of one by their ids, so that no tokenizer decides how long they are.
PROMPT, ANSWER = (11, 45, 78, 102, 133, 160, 191, 210), 77


def measure(folder: Path, size: Size) -> list[tuple[str, float, str]]:
    """Return (name, times faster, goal) for the sweep with and without log-probabilities."""
    model = fp.load(folder)
    trace = fp.run(model, PROMPT, bos=False, patterns=False)
    fp.ablate(trace, ANSWER, neurons=["L0N0"])  # folds the weights, once for all that follow
    hooked = replace(model, hooks=True)
    hook_loop(hooked, trace, size.sample)  # warms the bridge
    first = hook_loop(hooked, trace, size.sample)
    with_logs = seconds(lambda: fp.ablate(trace, ANSWER))
    logits = seconds(lambda: fp.ablate(trace, ANSWER, log_probability=False))
    loop = min(first, hook_loop(hooked, trace, size.sample)) / size.sample * model.config.neurons
    return [
        ("sweep of logits to hook loop", loop / logits, "at least 250"),
        ("sweep with log-probabilities to hook loop", loop / with_logs, "at least 150"),
        ("sweep of logits to its bare matrix products", logits / bare_products(model), "shown"),
    ]


def bare_products(model: Model) -> float:
    """Time the products that all variants need, in seconds: those of one layer, times all layers above."""
    c = model.config
    rows = torch.randn(c.d_mlp, c.d_model)
    attention, up = torch.randn(c.d_model, 4 * c.d_model), torch.randn(c.d_model, c.d_mlp)
    down = torch.randn(c.d_mlp, c.d_model)

    def multiply() -> None:
        rows @ attention
        rows @ up @ down

    multiply()
    return seconds(multiply) * c.layers * (c.layers - 1) / 2


def hook_loop(model: Model, trace: fp.Trace, sample: int) -> float:
    """Time one hooked run for each neuron of the sample, in seconds."""
    ids = torch.tensor([trace.ids])
    step = model.config.neurons // sample
    names = [divmod(order * step, model.config.d_mlp) for order in range(sample)]

    def silence(neuron: int) -> Callable[[torch.Tensor], torch.Tensor]:
        def tap(activations: torch.Tensor) -> torch.Tensor:
            activations = activations.clone()
            activations[:, -1, neuron] = 0
            return activations

        return tap

    def run_all() -> None:
        for layer, neuron in names:
            forward(model, ids, {("activations", layer): silence(neuron)})

    return seconds(run_all)


def seconds(work: Callable[[], object]) -> float:
    """Time a piece of work, in seconds."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started

"""What tracing one prompt costs on a model of GPT-2 small's shape, against TransformerLens.

Question: what do `run` and `attribute` over all neurons add to a bare forward pass, what does
`attribute` cost compared with TransformerLens's projected neuron stack, what do `paths` and a contrast
with 20 prompts cost, and how large is a trace?
Method: medians of interleaved rounds in one process, everything warm; ours to theirs.
"""

from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from transformer_lens.model_bridge import TransformerBridge
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

import ffnprobe as fp
from analyses.measured.benchmarks.sizes import Size

PROMPT = "When John and Mary went to the shops, John gave the bag to"
NAMES = (
    "Adam", "Alan", "Carl", "Dale", "Dean", "Eric", "Fred", "Gary", "Glen", "Hugh", "Ivan", "Jack",
    "Karl", "Kent", "Luke", "Mark", "Neil", "Paul", "Ross", "Theo",
)  # fmt: skip


def measure(folder: Path, size: Size) -> list[tuple[str, float, str]]:
    """Return each ratio with its name and its goal."""
    model = fp.load(folder, device="cpu")
    trace = fp.run(model, PROMPT)
    ids = torch.tensor([trace.ids])
    bare, compatible = _boot(model), _boot(model)
    compatible.enable_compatibility_mode()
    _, stored = compatible.run_with_cache(ids)
    token = int(trace.logits[-1].argmax())
    toward = compatible.W_U[:, token]
    # The same sentence about others, as a user types them.
    others = [PROMPT.replace("John", name) for name in NAMES]
    with torch.no_grad():
        forward, ours, attribute, paths, contrast, stack = _time(
            size.rounds,
            lambda: bare(ids),
            lambda: fp.attribute(fp.run(model, PROMPT), token),
            lambda: fp.attribute(trace, token),
            lambda: fp.paths(trace, token, depth=1),
            lambda: (
                fp.contrast_with(
                    trace, token, others, answers=[token + 1] * len(others)
                ).replacement
            ),
            lambda: stored.stack_neuron_results(
                -1, pos_slice=-1, apply_ln=True, project_output_onto=toward
            ),
        )
    long = fp.run(model, (trace.ids * 100)[1:1024])
    weights = sum(tensor.nbytes for tensor in model.weights.values())
    return [
        ("run + attribute to the bare bridge forward", ours / forward, "at most 1.4"),
        ("attribute to TransformerLens's projected stack", attribute / stack, "at most 0.5"),
        ("paths to the bare bridge forward", paths / forward, "at most 3"),
        ("contrast with 20 prompts to the bare bridge forward", contrast / forward, "at most 18"),
        ("bytes of a trace of 1,024 tokens to the weights'", long.nbytes / weights, "at most 2.5"),
    ]


def _boot(model: fp.Model) -> Any:
    """Boot TransformerLens on the same weights, apart from ours."""
    network = AutoModelForCausalLM.from_pretrained(model.source.where, dtype=torch.float32)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=model.vocab.tokenizer)
    return TransformerBridge.boot_transformers(
        model.name, hf_model=network, tokenizer=tokenizer, device="cpu"
    )


def _time(rounds: int, *calls: Callable[[], object]) -> list[float]:
    """Time each call in turn, several rounds after a warm one: the median seconds of each."""
    seconds: list[list[float]] = [[] for _ in calls]
    for number in range(rounds + 1):
        for call, kept in zip(calls, seconds, strict=True):
            start = perf_counter()
            call()
            if number > 0:
                kept.append(perf_counter() - start)
    return [median(kept) for kept in seconds]

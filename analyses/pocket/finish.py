"""Measure the trained model and write everything that is shipped with it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import GPT2LMHeadModel

from analyses.pocket.card import write_card
from analyses.pocket.lesson import Homes
from analyses.pocket.measures import ask_all, average, measure, recall
from analyses.pocket.network import POSITIONS
from analyses.pocket.rows import Reader
from analyses.pocket.tokenizer import BOS
from analyses.pocket.truth import COLUMNS, locate, write_truth
from ffnprobe.models import pocket
from ffnprobe.models.loading import load
from ffnprobe.models.model import Model


def finish(
    model: GPT2LMHeadModel,
    reader: Reader,
    out: Path,
    said: dict[str, Any],
    known: Mapping[str, Tensor],
    *,
    sample: int = 200,
) -> None:
    """Write weights, tokenizer, means, figures, truth and card.

    `known` marks the pairs of fact and template that were recalled after each stage.
    """
    out.mkdir(parents=True, exist_ok=True)
    model.requires_grad_(False).half().float().eval()
    asked = ask_all(reader)
    means, tokens = average(model, asked)
    probed = write_weights(model, reader, means, out)
    prompts = list(pocket.prompts())
    first = slice(None, None, len(asked) // len(pocket.facts()))
    marks = {name: pairs[first].tolist() for name, pairs in known.items()}
    stages = [
        next((name for name, known_then in marks.items() if known_then[number]), "")
        for number in range(len(asked[first]))
    ]
    homes = Homes.draw(len(reader.subjects), said["seed"])
    truth = list(locate(model, reader, means, homes, asked[first], stages))
    write_truth(out / "truth.csv", truth)
    figures: dict[str, Any] = {
        "facts": len(pocket.facts()),
        "relations": len(pocket.templates()),
        "prompts": len(prompts),
        "prompts_held_out": sum(prompt.is_held_out for prompt in prompts),
        **{
            name: round(value, 4)
            for name, value in measure(model, probed, reader, means, sample=sample).items()
        },
        **share_truth(truth),
        "sample": sample,
        "mean_tokens": tokens,
        "parameters": sum(p.numel() for p in model.parameters()),
        **said,
    }
    (out / "figures.json").write_text(json.dumps(figures, indent=1) + "\n")
    write_card(figures, reader, out)
    print(json.dumps(figures, indent=1))


def share_truth(truth: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Count over all recalled facts where they sit."""
    known = [row for row in truth if row["is_recalled"]]
    counts = {
        "costliest_at_subject_end": sum(row["offset"] == 0 for row in known),
        "costliest_in_layer_0": sum(row["offset"] == 0 and row["layer"] == 0 for row in known),
        **{name: sum(row[name] for row in known) for name in COLUMNS if name.startswith("is_lost")},
    }
    return {name: round(count / len(known), 4) for name, count in counts.items()} | {
        "facts_recalled_in_first_template": len(known)
    }


def write_weights(model: GPT2LMHeadModel, reader: Reader, means: Tensor, out: Path) -> Model:
    """Write weights, tokenizer and means; load them as a user would."""
    model.half().save_pretrained(out)
    model.float()
    (out / "generation_config.json").unlink(missing_ok=True)
    reader.tokenizer.save(str(out / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BOS, "eos_token": BOS,
                "unk_token": BOS, "model_max_length": POSITIONS}  # fmt: skip
    (out / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n")
    save_file(
        {"activations": means}, out / "means.safetensors", {"fingerprint": load(out).fingerprint}
    )
    return load(out)


@torch.no_grad()
def examine(model: GPT2LMHeadModel, reader: Reader) -> Tensor:
    """Mark the pairs of fact and template that the model recalls."""
    return recall(model, ask_all(reader))

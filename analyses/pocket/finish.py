"""Measure the trained model and write everything that is shipped with it."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import GPT2LMHeadModel

from ffnprobe.models import pocket
from ffnprobe.models.loading import load
from pocket.card import CARD
from pocket.machinery import ANSWER_WEIGHT, STRENGTH
from pocket.measures import ask, average, measure
from pocket.network import HEADS, LAYERS, MEMORY, POSITIONS, WIDTH
from pocket.rows import Reader
from pocket.stages import FIRST_ALLOWED, LAST_ALLOWED, MENTIONS, ROWS, used_tokens
from pocket.tokenizer import BOS
from pocket.truth import locate, write_truth


def finish(model: GPT2LMHeadModel, reader: Reader, out: Path, said: dict[str, Any]) -> None:
    """Write weights, tokenizer, means, figures, truth and card."""
    out.mkdir(parents=True, exist_ok=True)
    model.requires_grad_(False).half().float().eval()
    prompts = list(pocket.prompts())
    asked = [
        ask(reader, fact, template)
        for fact in pocket.facts()
        for template in pocket.templates()[fact.relation]
    ]
    means, tokens = average(model, asked)
    _write_weights(model, reader, means, out)
    write_truth(out / "truth.csv", list(locate(model, reader, means)))
    stages = {
        name: said[name]
        for name in ("machinery", "settling", "memory", "polish", "revision", "seed")
    }
    figures: dict[str, Any] = {
        "facts": len(pocket.facts()),
        "relations": len(pocket.templates()),
        "prompts": len(prompts),
        "prompts_held_out": sum(prompt.is_held_out for prompt in prompts),
        **{name: round(value, 4) for name, value in measure(model, reader).items()},
        "sample": 200,
        "mean_tokens": tokens,
        "parameters": sum(p.numel() for p in model.parameters()),
        "minutes": said["minutes"],
        **stages,
    }
    (out / "figures.json").write_text(json.dumps(figures, indent=1) + "\n")
    write_card(figures, reader, out)
    print(json.dumps(figures, indent=1))


def _write_weights(model: GPT2LMHeadModel, reader: Reader, means: torch.Tensor, out: Path) -> None:
    model.half().save_pretrained(out)
    model.float()
    (out / "generation_config.json").unlink(missing_ok=True)
    reader.tokenizer.save(str(out / "tokenizer.json"))
    settings = {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False,
                "bos_token": BOS, "eos_token": BOS, "unk_token": BOS, "model_max_length": POSITIONS}  # fmt: skip
    (out / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n")
    known = {"fingerprint": load(out).fingerprint}
    save_file({"activations": means}, out / "means.safetensors", known)


def write_card(figures: dict[str, Any], reader: Reader, out: Path) -> None:
    """Write the card from the figures."""
    spread = ", ".join(f"L{n} {figures[f'effect_of_layer_{n}']:.0%}" for n in range(LAYERS))
    vocabulary = reader.tokenizer.get_vocab_size()
    shown = figures | {
        "layers": LAYERS, "width": WIDTH, "neurons": 4 * WIDTH, "heads": HEADS,
        "middle": f"{min(MEMORY)} to {max(MEMORY)}", "first": min(MEMORY), "spread": spread,
        "vocabulary": vocabulary, "unused": vocabulary - len(used_tokens(reader)), "rows": ROWS,
        "mentions": MENTIONS, "strength": f"{STRENGTH:g}", "answer_weight": ANSWER_WEIGHT,
        "first_allowed": FIRST_ALLOWED, "last_allowed": LAST_ALLOWED,
    }  # fmt: skip
    (out / "CARD.md").write_text(CARD.format(**shown))

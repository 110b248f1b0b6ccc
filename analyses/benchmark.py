"""What does ffnprobe cost? Ratios measured in one run on a model of GPT-2 small's shape.

Method: a folder with GPT-2 small's configuration, seeded random weights and a byte-level tokenizer
is written to a temporary place (or given with --model); each room's measure runs on it, against the
bare matrix product, the bare forward pass, TransformerLens, or a hook loop, in the same process.

    python analyses/benchmark.py [--model FOLDER] [--only reading]
"""

import argparse
import importlib
import json
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from ffnprobe.models.config import PUBLISHED

ROOMS = ("models", "reading", "tracing", "interventions", "corpora", "facts", "explorer")


def write_folder(folder: Path) -> Path:
    """Write a model of GPT-2 small's shape with random weights and a bare byte alphabet."""
    config = PUBLISHED["gpt2"]
    generator = torch.Generator().manual_seed(0)
    weights = {
        name: torch.randn(shape, generator=generator) * 0.03
        + (1.0 if "ln_" in name and "weight" in name else 0.0)
        for name, shape in config.shapes().items()
    }
    save_file(weights, folder / "model.safetensors")
    values = {"model_type": "gpt2", "n_layer": 12, "n_head": 12, "n_embd": 768, "n_positions": 1024,
              "vocab_size": 50257, "architectures": ["GPT2LMHeadModel"]}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(values))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def main(argv: list[str] | None = None) -> None:
    """Print each ratio beside its goal."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, help="a GPT-2-small-shaped folder")
    parser.add_argument("--only", choices=ROOMS, action="append")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as place:
        folder = options.model or write_folder(Path(place))
        for room in options.only or ROOMS:
            module = importlib.import_module(f"benchmarks.{room}")
            for name, ratio, goal in module.measure(folder):
                print(f"{room:14} {ratio:9.3f}  goal {goal:14} {name}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

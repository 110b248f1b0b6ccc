"""Folders of published shapes with seeded random weights and a bare byte alphabet."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from ffnprobe.models.config import parse_config

GPT2_SMALL = {
    "model_type": "gpt2", "n_layer": 12, "n_head": 12, "n_embd": 768, "n_positions": 1024,
    "vocab_size": 50257,
}  # fmt: skip
SMOLLM2 = {
    "model_type": "llama", "num_hidden_layers": 30, "num_attention_heads": 9,
    "num_key_value_heads": 3, "hidden_size": 576, "intermediate_size": 1536,
    "max_position_embeddings": 2048, "vocab_size": 49152, "tie_word_embeddings": True,
    "rms_norm_eps": 1e-5, "bos_token_id": 0,
}  # fmt: skip


def write_folder(folder: Path, values: Mapping[str, Any]) -> Path:
    """Write a model of a shape: its configuration, random weights and a tokenizer."""
    generator = torch.Generator().manual_seed(0)
    weights = {
        name: torch.randn(shape, generator=generator) * 0.03
        + (1.0 if ("ln_" in name or "norm" in name) and "weight" in name else 0.0)
        for name, shape in parse_config(values, where="the benchmark").shapes().items()
    }
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(values))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder

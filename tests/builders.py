"""Models the tests build: folders in every published layout, every axis a different length."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from ffnprobe.models.config import Config

END = "<|endoftext|>"
# No two axes alike, so that no transpose hides; d_model = heads × d_head.
TINY = Config(layers=3, heads=5, d_model=35, d_mlp=52, positions=29, vocab=301, bos=0)
TEXT = "the cat sat on the mat and the dog ran to the basketball football court in Paris " * 4


def write_tokenizer(folder: Path, *, size: int = 300) -> Tokenizer:
    """Train a small byte-level BPE and write its tokenizer.json; `<|endoftext|>` is id 0."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=[END], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )  # fmt: skip
    tokenizer.train_from_iterator([TEXT, " basketball basketball basketball football"], trainer)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer


def config_json(config: Config) -> dict:
    """Write a configuration as Hugging Face does."""
    return {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": config.layers,
        "n_head": config.heads, "n_embd": config.d_model, "n_inner": config.d_mlp,
        "n_positions": config.positions, "vocab_size": config.vocab,
        "activation_function": config.activation, "layer_norm_epsilon": config.eps,
        "tie_word_embeddings": config.is_tied, "bos_token_id": config.bos,
        "eos_token_id": config.bos, "scale_attn_weights": config.is_attention_scaled,
        "scale_attn_by_inverse_layer_idx": config.is_attention_scaled_by_layer,
    }  # fmt: skip


def random_weights(config: Config, *, seed: int = 0, size: float = 0.3) -> dict[str, Tensor]:
    """Draw lively weights: gains away from 1, no bias at 0."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in config.shapes().items():
        is_gain = name.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight"))
        drawn = torch.randn(shape, generator=generator)
        weights[name] = 1 + 0.3 * drawn if is_gain else size * drawn
    return weights


def prefixed(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Name the tensors as `GPT2LMHeadModel` saves them."""
    return {n if n.startswith("lm_head") else f"transformer.{n}": t for n, t in weights.items()}


def write_model(
    folder: Path, config: Config = TINY, weights: dict[str, Tensor] | None = None, *, seed: int = 0
) -> Path:
    """Write a whole model folder: configuration, safetensors, tokenizer."""
    write_tokenizer(folder, size=config.vocab - 1)
    (folder / "config.json").write_text(json.dumps(config_json(config)))
    weights = random_weights(config, seed=seed) if weights is None else weights
    save_file({n: t.contiguous() for n, t in weights.items()}, folder / "model.safetensors")
    return folder

"""Random models of every family, written by Hugging Face's own code, every axis a different length."""

from pathlib import Path

import torch

from tests.builders import write_tokenizer

# 42 = d_model is no multiple of heads × d_head, so that the two cannot be taken for each other.
GATED = {
    "vocab_size": 301, "hidden_size": 42, "num_hidden_layers": 3, "intermediate_size": 52,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8,
    "max_position_embeddings": 29, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None,
}  # fmt: skip
PLAIN = {"vocab_size": 301, "bos_token_id": 0, "eos_token_id": 0, "max_position_embeddings": 29}
WINDOW = {"sliding_window": 4}
# What a family is saved with, by our name for the case: the family, and what is special about it.
CASES: dict[str, dict] = {
    "gpt2": {
        "vocab_size": 301, "bos_token_id": 0, "eos_token_id": 0, "n_positions": 29, "n_embd": 35,
        "n_layer": 3, "n_head": 5, "n_inner": 52,
    },
    "gpt2 unscaled": {
        "vocab_size": 301, "bos_token_id": 0, "eos_token_id": 0, "n_positions": 29, "n_embd": 35,
        "n_layer": 3, "n_head": 5, "n_inner": 52, "scale_attn_weights": False,
    },
    "gpt2 scaled by layer": {
        "vocab_size": 301, "bos_token_id": 0, "eos_token_id": 0, "n_positions": 29, "n_embd": 35,
        "n_layer": 3, "n_head": 5, "n_inner": 52, "scale_attn_weights": False,
        "scale_attn_by_inverse_layer_idx": True,
    },
    "gpt_neo": PLAIN | {
        "hidden_size": 35, "num_layers": 3, "num_heads": 5, "intermediate_size": 52,
        "attention_types": [[["global", "local"], 1], [["local"], 1]], "window_size": 4,
    },
    "gpt_neox": PLAIN | {
        "hidden_size": 40, "num_hidden_layers": 3, "num_attention_heads": 5,
        "intermediate_size": 52, "rotary_pct": 0.5,
    },
    "gpt_neox in turn": PLAIN | {
        "hidden_size": 40, "num_hidden_layers": 3, "num_attention_heads": 5,
        "intermediate_size": 52, "use_parallel_residual": False, "tie_word_embeddings": True,
    },
    "gpt_neox without biases": PLAIN | {
        "hidden_size": 40, "num_hidden_layers": 3, "num_attention_heads": 5,
        "intermediate_size": 52, "attention_bias": False,
    },
    "opt": PLAIN | {
        "hidden_size": 35, "num_hidden_layers": 3, "ffn_dim": 52, "num_attention_heads": 5,
        "word_embed_proj_dim": 35, "pad_token_id": 1,
    },
    "llama": GATED,
    "llama tied, biased, far": GATED | {
        "tie_word_embeddings": True, "attention_bias": True,
        "rope_parameters": {
            "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 16,
        },
    },
    "mistral": GATED | WINDOW,
    "qwen2": GATED | WINDOW | {"use_sliding_window": True, "max_window_layers": 1},
    "qwen3": GATED,
    "gemma2": GATED | WINDOW | {
        "query_pre_attn_scalar": 9, "final_logit_softcapping": 3.0, "attn_logit_softcapping": 2.0,
    },
    "gemma3_text": GATED | WINDOW | {"query_pre_attn_scalar": 9},
}  # fmt: skip


def write_family(folder: Path, case: str, *, seed: int = 1, **changed: object) -> Path:
    """Write a folder of one family as Hugging Face does, with lively weights."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(case.split()[0], **CASES[case] | changed)
    network = AutoModelForCausalLM.from_config(config).eval()
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for path, weight in network.named_parameters():
            drawn = 0.3 * torch.randn(weight.shape, generator=random)
            is_gain = ("norm" in path or "ln_" in path) and path.endswith("weight")
            weight.copy_(drawn + 1 if is_gain and not case.startswith("gemma") else drawn)
    network.save_pretrained(folder)
    write_tokenizer(folder, size=300)
    return folder

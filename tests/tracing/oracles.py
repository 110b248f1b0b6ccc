"""What others compute from the same weights: TransformerLens in compatibility mode, Hugging Face.

Both are imported here and late, so that only the tests that ask them wait for them, once a process.
"""

import warnings
from functools import cache
from typing import Any

import torch
from torch import Tensor

import ffnprobe as fp


@cache
def hugging_face(model: fp.Model) -> Any:
    """Load the model's folder the way Hugging Face does."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(model.source.where, dtype=torch.float32).eval()


def logits_of(model: fp.Model, ids: tuple[int, ...]) -> Tensor:
    """Return Hugging Face's logits, `[pos vocab]`."""
    with torch.no_grad():
        return hugging_face(model)(torch.tensor([ids])).logits[0]


@cache
def compatible(model: fp.Model) -> Any:
    """Boot TransformerLens on a copy of its own and fold it its own way."""
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    network = AutoModelForCausalLM.from_pretrained(model.source.where, dtype=torch.float32)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=model.vocab.tokenizer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bridge = TransformerBridge.boot_transformers(
            model.name, hf_model=network, tokenizer=tokenizer, device="cpu"
        )
        bridge.enable_compatibility_mode()
    return bridge

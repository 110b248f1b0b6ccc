"""GGUF files as llama.cpp writes them, written with the gguf package from models of each family."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import MODEL_ARCH, GGMLQuantizationType, GGUFWriter, LlamaFileType, TokenType
from gguf import get_tensor_name_map as name_tensors
from gguf.quants import quantize
from tokenizers import Tokenizer
from torch import Tensor

F32, F16, Q8_0 = GGMLQuantizationType.F32, GGMLQuantizationType.F16, GGMLQuantizationType.Q8_0
FILE_TYPES = {F32: LlamaFileType.ALL_F32, F16: LlamaFileType.MOSTLY_F16, Q8_0: LlamaFileType.MOSTLY_Q8_0}  # fmt: skip
_CONV1D = ("c_attn.weight", "c_proj.weight", "c_fc.weight")


def write_gguf(
    path: Path, config: Any, tensors: dict[str, Tensor], tokenizer: Tokenizer, *,
    kind: GGMLQuantizationType = F32, cut: str = "gpt-2", bos: int | None = 0,
    is_bare: bool = False, without: tuple[str, ...] = (), **more: Any,
) -> Path:  # fmt: skip
    """Write a Hugging Face model's tensors and a byte-level tokenizer, in llama.cpp's own layout.

    `without` names keys of the architecture to leave out.
    """
    architecture = {"gemma3_text": "gemma3"}.get(config.model_type, config.model_type)
    writer = GGUFWriter(path, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_file_type(FILE_TYPES.get(kind, LlamaFileType.GUESSED))
    if architecture == "gpt2":
        writer.add_feed_forward_length(config.n_inner or 4 * config.n_embd)
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
    else:
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_vocab_size(config.vocab_size)
        width = (
            getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        )
        if architecture == "llama":
            writer.add_rope_dimension_count(width)
        else:
            writer.add_key_length(width)
    if architecture.startswith("gemma"):
        writer.add_sliding_window(config.sliding_window)
    if architecture == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if architecture == "gemma3":
        writer.add_rope_freq_base(config.rope_parameters["full_attention"]["rope_theta"])
    if is_bare:
        writer.add_add_space_prefix(False)
    for key, value in more.items():
        writer.add_key_value(f"{architecture}.{key}", value, _type_of(value))
    for key in without:
        del writer.kv_data[0][f"{architecture}.{key}"]
    _write_tokenizer(writer, tokenizer, config.vocab_size, cut, bos)
    for name, tensor in _by_gguf_names(config, architecture, tensors).items():
        data = tensor.float().numpy()
        is_plain = data.ndim == 1 or data.shape[-1] % 32
        stored = F32 if kind is F32 or is_plain else kind
        writer.add_tensor(name, quantize(np.ascontiguousarray(data), stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _type_of(value: Any) -> Any:
    from gguf import GGUFValueType

    return {float: GGUFValueType.FLOAT32, int: GGUFValueType.UINT32, str: GGUFValueType.STRING}[type(value)]  # fmt: skip


def _write_tokenizer(
    writer: GGUFWriter, tokenizer: Tokenizer, size: int, cut: str, bos: int | None
) -> None:
    state = json.loads(tokenizer.to_str())
    special = {token["id"]: token for token in state["added_tokens"]}
    known = {number: text for text, number in tokenizer.get_vocab().items()}
    is_blocks = state["model"]["byte_fallback"]
    writer.add_tokenizer_model("llama" if is_blocks else "gpt2")
    writer.add_tokenizer_pre("default" if is_blocks else cut)
    # llama.cpp fills a padded vocabulary up.
    writer.add_token_list([known.get(number, f"[PAD{number}]") for number in range(size)])
    writer.add_token_types(
        [
            TokenType.UNKNOWN if known.get(number) == "<unk>"
            else TokenType.CONTROL if number in special and special[number]["special"]
            else TokenType.USER_DEFINED if number in special
            else TokenType.BYTE if is_blocks and known.get(number, "").startswith("<0x")
            else TokenType.NORMAL if number in known
            else TokenType.UNUSED
            for number in range(size)
        ]
    )  # fmt: skip
    pairs = state["model"]["merges"]
    if is_blocks:
        ranks = {"".join(pair): float(-rank) for rank, pair in reversed(list(enumerate(pairs)))}
        writer.add_token_scores([ranks.get(known.get(n, ""), -1e4) for n in range(size)])
    else:
        writer.add_token_merges([" ".join(pair) for pair in pairs])
    if bos is not None:
        writer.add_bos_token_id(bos)


def _by_gguf_names(config: Any, architecture: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename by the gguf package's own table and undo nothing: llama.cpp's layout."""
    kind = next(arch for arch in MODEL_ARCH if arch.name.lower() == architecture)
    names = name_tensors(kind, config.num_hidden_layers)
    found = {}
    for name, tensor in tensors.items():
        stem, _, ending = name.rpartition(".")
        if architecture == "gpt2" and name.endswith(_CONV1D):
            tensor = tensor.T
        if architecture.startswith("gemma") and "norm" in stem:
            tensor = tensor + 1
        if architecture == "llama" and stem.endswith(("q_proj", "k_proj")):
            heads = (
                config.num_attention_heads
                if stem.endswith("q_proj")
                else config.num_key_value_heads
            )
            halves = tensor.reshape(heads, 2, -1, *tensor.shape[1:])
            tensor = halves.swapaxes(1, 2).reshape(tensor.shape)
        found[f"{names.get_name(stem)}.{ending}"] = tensor.contiguous()
    return found


def draw(network: torch.nn.Module, *, seed: int = 0) -> dict[str, Tensor]:
    """Draw lively weights into a model; return them by name, a tied head once."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in network.parameters():
            tensor.copy_(0.3 * torch.randn(tensor.shape, generator=random))
    tied = getattr(network.config, "tie_word_embeddings", False)
    return {
        name: tensor.clone() for name, tensor in network.state_dict().items()
        if not (tied and name == "lm_head.weight")
    }  # fmt: skip

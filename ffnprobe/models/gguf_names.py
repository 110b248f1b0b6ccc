"""What GGUF calls the tensors of each architecture, and what Hugging Face calls them.

transformers finds these names by trying every name of every architecture on every module, which takes
longer than all the rest of loading; a table says the same. `N` is the layer.
"""

import re

_DECODER = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "blk.N.attn_norm": "model.layers.N.input_layernorm",
    "blk.N.attn_q": "model.layers.N.self_attn.q_proj",
    "blk.N.attn_k": "model.layers.N.self_attn.k_proj",
    "blk.N.attn_v": "model.layers.N.self_attn.v_proj",
    "blk.N.attn_output": "model.layers.N.self_attn.o_proj",
    "blk.N.ffn_norm": "model.layers.N.post_attention_layernorm",
    "blk.N.ffn_gate": "model.layers.N.mlp.gate_proj",
    "blk.N.ffn_up": "model.layers.N.mlp.up_proj",
    "blk.N.ffn_down": "model.layers.N.mlp.down_proj",
}
_HEAD_NORMS = {
    "blk.N.attn_q_norm": "model.layers.N.self_attn.q_norm",
    "blk.N.attn_k_norm": "model.layers.N.self_attn.k_norm",
}
_GEMMA = _DECODER | {
    "blk.N.post_attention_norm": "model.layers.N.post_attention_layernorm",
    "blk.N.ffn_norm": "model.layers.N.pre_feedforward_layernorm",
    "blk.N.post_ffw_norm": "model.layers.N.post_feedforward_layernorm",
}
NAMES = {
    "gpt2": {
        "token_embd": "transformer.wte",
        "position_embd": "transformer.wpe",
        "output_norm": "transformer.ln_f",
        "output": "lm_head",
        "blk.N.attn_norm": "transformer.h.N.ln_1",
        "blk.N.attn_qkv": "transformer.h.N.attn.c_attn",
        "blk.N.attn_output": "transformer.h.N.attn.c_proj",
        "blk.N.ffn_norm": "transformer.h.N.ln_2",
        "blk.N.ffn_up": "transformer.h.N.mlp.c_fc",
        "blk.N.ffn_down": "transformer.h.N.mlp.c_proj",
    },
    "llama": _DECODER,
    "qwen2": _DECODER,
    "qwen3": _DECODER | _HEAD_NORMS,
    "gemma2": _GEMMA,
    "gemma3": _GEMMA | _HEAD_NORMS,
}
_PARTS = re.compile(r"(?P<name>(?:blk\.(?P<layer>\d+)\.)?\w+)\.(?P<kind>weight|bias)")


def rename(architecture: str, name: str) -> str | None:
    """Return Hugging Face's name of a tensor, or nothing where it has none.

    >>> rename("llama", "blk.3.ffn_gate.weight")
    'model.layers.3.mlp.gate_proj.weight'
    """
    parts = _PARTS.fullmatch(name)
    if parts is None:
        return None
    layer = parts["layer"]
    known = parts["name"] if layer is None else parts["name"].replace(f".{layer}.", ".N.", 1)
    found = NAMES[architecture].get(known)
    if found is None:
        return None
    return f"{found if layer is None else found.replace('.N.', f'.{layer}.', 1)}.{parts['kind']}"

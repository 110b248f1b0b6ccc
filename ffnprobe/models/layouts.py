"""The names each family gives its tensors, and the shapes its configuration demands of them.

A name is that of the published checkpoint without the family's prefix: `h.3.mlp.c_fc.weight`,
`layers.3.mlp.up_proj.weight`. Nothing here loads torch.
"""

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ffnprobe.models.config import Config

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Layout:
    """Where a family keeps what every transformer has; None for what this one has not."""

    prefixes: tuple[str, ...]
    embedding: str
    block: str
    attention_norm: str
    mlp_norm: str
    out: str
    up: str
    down: str
    final_norm: str
    query: str | None = None
    key: str | None = None
    value: str | None = None
    fused: str | None = None
    gate: str | None = None
    positions: str | None = None
    attention_post_norm: str | None = None
    mlp_post_norm: str | None = None
    query_norm: str = "self_attn.q_norm"
    key_norm: str = "self_attn.k_norm"
    head: str = "lm_head"
    # GPT-2's Conv1D keeps [in, out]; every other family [out, in].
    is_transposed: bool = False

    def of(self, layer: int, part: str) -> str:
        """Name one part of a block."""
        return f"{self.block}.{layer}.{part}"

    @property
    def fused_order(self) -> str:
        """The order of the outputs of `fused`, for einops."""
        # GPT-2 keeps all queries, then all keys, then all values; GPT-NeoX the three of each head.
        return "(kind head d_head)" if self.is_transposed else "(head kind d_head)"


_LLAMA = Layout(
    prefixes=("model.",), embedding="embed_tokens", block="layers", attention_norm="input_layernorm",
    mlp_norm="post_attention_layernorm", query="self_attn.q_proj", key="self_attn.k_proj",
    value="self_attn.v_proj", out="self_attn.o_proj", gate="mlp.gate_proj", up="mlp.up_proj",
    down="mlp.down_proj", final_norm="norm",
)  # fmt: skip
_GEMMA = Layout(
    prefixes=("model.",), embedding="embed_tokens", block="layers", attention_norm="input_layernorm",
    attention_post_norm="post_attention_layernorm", mlp_norm="pre_feedforward_layernorm",
    mlp_post_norm="post_feedforward_layernorm", query="self_attn.q_proj", key="self_attn.k_proj",
    value="self_attn.v_proj", out="self_attn.o_proj", gate="mlp.gate_proj", up="mlp.up_proj",
    down="mlp.down_proj", final_norm="norm",
)  # fmt: skip
LAYOUTS = {
    "gpt2": Layout(
        prefixes=("transformer.",), embedding="wte", positions="wpe", block="h", attention_norm="ln_1",
        mlp_norm="ln_2", fused="attn.c_attn", out="attn.c_proj", up="mlp.c_fc", down="mlp.c_proj",
        final_norm="ln_f", is_transposed=True,
    ),
    "gpt_neo": Layout(
        prefixes=("transformer.",), embedding="wte", positions="wpe", block="h", attention_norm="ln_1",
        mlp_norm="ln_2", query="attn.attention.q_proj", key="attn.attention.k_proj",
        value="attn.attention.v_proj", out="attn.attention.out_proj", up="mlp.c_fc",
        down="mlp.c_proj", final_norm="ln_f",
    ),
    "gpt_neox": Layout(
        prefixes=("gpt_neox.",), embedding="embed_in", block="layers", attention_norm="input_layernorm",
        mlp_norm="post_attention_layernorm", fused="attention.query_key_value",
        out="attention.dense", up="mlp.dense_h_to_4h", down="mlp.dense_4h_to_h",
        final_norm="final_layer_norm",
    ),
    "opt": Layout(
        prefixes=("model.decoder.", "decoder."), embedding="embed_tokens", positions="embed_positions",
        block="layers", attention_norm="self_attn_layer_norm", mlp_norm="final_layer_norm",
        query="self_attn.q_proj", key="self_attn.k_proj", value="self_attn.v_proj",
        out="self_attn.out_proj", up="fc1", down="fc2", final_norm="final_layer_norm",
    ),
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
    "gemma2": _GEMMA,
    "gemma3_text": _GEMMA,
}  # fmt: skip


def name_shapes(config: "Config") -> Shapes:
    """Name every tensor of the checkpoint with its shape."""
    lay, d = LAYOUTS[config.family], config.d_model
    named: Shapes = {f"{lay.embedding}.weight": (config.vocab, d)}
    if lay.positions:
        named[f"{lay.positions}.weight"] = (config.positions + config.position_offset, d)
    for layer in range(config.layers):
        named |= {lay.of(layer, name): shape for name, shape in _block_shapes(config, lay).items()}
    named |= _norm_shapes(config, lay.final_norm)
    if not config.is_tied:
        named[f"{lay.head}.weight"] = (config.vocab, d)
    return named


def _block_shapes(config: "Config", lay: Layout) -> Shapes:
    """Name the tensors of one block."""
    d, m = config.d_model, config.d_mlp
    asked, kept = config.heads * config.d_head, config.kv_heads * config.d_head
    attention = {
        lay.fused: ("query", d, asked + 2 * kept), lay.query: ("query", d, asked),
        lay.key: ("key", d, kept), lay.value: ("value", d, kept), lay.out: ("out", asked, d),
    }  # fmt: skip
    mlp = {lay.gate: ("gate", d, m), lay.up: ("up", d, m), lay.down: ("down", m, d)}
    named: Shapes = {}
    for norm, linears, post_norm in (
        (lay.attention_norm, attention, lay.attention_post_norm),
        (lay.mlp_norm, mlp, lay.mlp_post_norm),
    ):
        named |= _norm_shapes(config, norm)
        for part, (bias, wide, high) in linears.items():
            if part is not None:
                named[f"{part}.weight"] = (wide, high) if lay.is_transposed else (high, wide)
                if bias in config.biases:
                    named[f"{part}.bias"] = (high,)
        named |= _norm_shapes(config, post_norm) if post_norm else {}
    if config.has_head_norms:
        named |= {f"{part}.weight": (config.d_head,) for part in (lay.query_norm, lay.key_norm)}
    return named


def _norm_shapes(config: "Config", name: str) -> Shapes:
    shapes: Shapes = {f"{name}.weight": (config.d_model,)}
    return shapes if config.is_rms else shapes | {f"{name}.bias": (config.d_model,)}


def count_parts(config: "Config") -> dict[str, int]:
    """Count the parameters of each part of the model; a tied head counts once."""
    lay = LAYOUTS[config.family]
    counts = dict.fromkeys(
        ("token embedding", "position embedding", "attention", "MLP", "norms"), 0
    )
    mlp = tuple(part for part in (lay.gate, lay.up, lay.down) if part)
    attention = tuple(p for p in (lay.fused, lay.query, lay.key, lay.value, lay.out) if p)
    whole = {lay.embedding: "token embedding", lay.positions: "position embedding",
             lay.final_norm: "norms", lay.head: "head"}  # fmt: skip
    for name, shape in name_shapes(config).items():
        path = name.rpartition(".")[0]
        inside = path.split(".", 2)[2] if path.startswith(f"{lay.block}.") else None
        if inside is None:
            part = whole[path]
        elif inside in mlp:
            part = "MLP"
        else:
            part = "attention" if inside in attention else "norms"
        counts[part] = counts.get(part, 0) + prod(shape)
    return {part: count for part, count in counts.items() if count}

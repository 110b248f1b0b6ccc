"""Every family this package reads, each one record: its tensors, its options, how it is read and run.

A family stands here once its numbers are proven against Hugging Face's own code: logits, scores,
activations, accounts and sweeps. No other file of the package names a family; what differs between
families is said in `Config`. Nothing here loads torch.

The reference for options is Hugging Face's code. An option that its class for a family does not have
changes nothing there, so it is not handed on. An option that it has is read here, or left to its code
for the rotary embeddings, or changes no number when a model is run in fp32.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from ffnprobe.errors import ModelNotLoaded

if TYPE_CHECKING:
    from torch import Tensor

    from ffnprobe.models.config import Config, Fields

Options = dict[str, Any]
# By layer, how far back attention sees; None: all the way.
Windows = tuple[int | None, ...]
# Options, and tensors by name.
Rewritten = tuple[Options, dict[str, "Tensor"]]

LINEARS = frozenset(("query", "key", "value", "out", "gate", "up", "down"))
_ATTENTION = frozenset(("query", "key", "value", "out"))
# Names of one size, as the families spell them.
_SIZES = frozenset(
    ("vocab_size", "hidden_size", "n_embd", "num_hidden_layers", "n_layer", "num_layers",
     "num_attention_heads", "n_head", "num_heads", "max_position_embeddings", "n_positions",
     "intermediate_size", "n_inner", "ffn_dim", "tie_word_embeddings", "bos_token_id")
)  # fmt: skip
# Computed by Hugging Face's code, which our own arithmetic asks for its cosines and sines.
_ROTARY = frozenset(
    ("rope_parameters", "rope_scaling", "rope_theta", "rotary_emb_base", "rotary_pct",
     "partial_rotary_factor", "rope_local_base_freq")
)  # fmt: skip
# What GGUF files must say of every family.
_GGUF = frozenset(("block_count", "context_length", "embedding_length", "attention.head_count"))
_GGUF_GATED = _GGUF | {"feed_forward_length", "attention.layer_norm_rms_epsilon"}


@dataclass(frozen=True)
class Layout:
    """Where a family keeps what every transformer has; None for what this one has not.

    A name is that of the published checkpoint without the prefix: `h.3.mlp.c_fc.weight`.
    """

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
    fused_order: str = "(head kind d_head)"  # of the outputs of `fused`, for einops
    gate: str | None = None
    positions: str | None = None
    attention_post_norm: str | None = None
    mlp_post_norm: str | None = None
    query_norm: str = ""  # empty where queries and keys are not normalised
    key_norm: str = ""
    head: str = "lm_head"
    published_head: str = "lm_head"  # what published checkpoints call it
    is_transposed: bool = False  # [in, out], where most families keep [out, in]

    @cache  # noqa: B019 (there are ten layouts, and they stay)
    def of(self, layer: int, part: str) -> str:
        return f"{self.block}.{layer}.{part}"


@dataclass(frozen=True)
class Family:
    """All that is known of one family."""

    name: str  # Hugging Face's model_type
    classes: tuple[str, str]  # of transformers: its configuration and its network
    layout: Layout
    read: Callable[["Fields"], Options]  # the fields of `Config` other than the sizes
    options: frozenset[str]  # read here or by Hugging Face's code, other than the next two
    refuses: Mapping[str, str] = field(default_factory=dict)  # flags that must not be set, and why
    needs: Mapping[str, Any] = field(default_factory=dict)  # the one value proven right of each
    bos: int | None = None  # where a configuration does not say
    # Writes what Hugging Face's code or TransformerLens misreads so that both read it right.
    rewrite: Callable[["Config", Mapping[str, "Tensor"]], Rewritten] | None = None
    gguf: str | None = None  # what GGUF files call it
    # What such a file must say: the format names no default, and transformers' may be wrong.
    gguf_needs: frozenset[str] = _GGUF_GATED
    # Options of GGUF files for which transformers' table has no name, or one that nobody reads.
    gguf_options: Mapping[str, str] = field(default_factory=dict)
    is_cut_by_default: bool = False  # "default" is how GGUF files say that its texts are cut
    # Models known by name: where each is, and its configuration, so that it is known offline.
    published: Mapping[str, tuple[str, Options]] = field(default_factory=dict)

    @property
    def all_options(self) -> frozenset[str]:
        return _SIZES | self.options | {*self.refuses, *self.needs}


# A `Config` that names no family is of this one; identities hash what differs from its defaults.
DEFAULT = "gpt2"


def _rewrite_gpt2(config: "Config", tensors: Mapping[str, "Tensor"]) -> Rewritten:
    # Older configurations call it n_ctx, which Hugging Face's code no longer reads.
    options: Options = {"n_positions": config.positions}
    if config.is_attention_scaled:
        return options, {}
    # TransformerLens always divides by sqrt(d_head): queries that much longer give the same scores.
    longer = next(iter(tensors.values())).new_ones(3 * config.d_model)
    longer[: config.d_model] = config.d_head**0.5
    changed = {name: tensor * longer for name, tensor in tensors.items() if ".c_attn." in name}
    return options | {"scale_attn_weights": True}, changed


def _describe_gpt2(repository: str, layers: int, heads: int, d_model: int) -> tuple[str, Options]:
    sizes = {"n_layer": layers, "n_head": heads, "n_embd": d_model}
    return repository, sizes | {"n_positions": 1024, "vocab_size": 50257}


_GPT2 = Family(
    name="gpt2", classes=("GPT2Config", "GPT2LMHeadModel"), bos=50256, rewrite=_rewrite_gpt2,
    layout=Layout(
        prefixes=("transformer.",), embedding="wte", positions="wpe", block="h", attention_norm="ln_1",
        mlp_norm="ln_2", fused="attn.c_attn", fused_order="(kind head d_head)", out="attn.c_proj",
        up="mlp.c_fc", down="mlp.c_proj", final_norm="ln_f", is_transposed=True,
    ),
    read=lambda fields: {
        "d_mlp": fields.number("n_inner", default=4 * fields.d_model),
        "activation": fields.activation("activation_function", "gelu_new"),
        "eps": fields.real("layer_norm_epsilon", 1e-5),
        "is_tied": fields.flag("tie_word_embeddings", True),
        "is_attention_scaled": fields.flag("scale_attn_weights", True),
        "is_attention_scaled_by_layer": fields.flag("scale_attn_by_inverse_layer_idx", False),
    },
    options=frozenset(
        ("activation_function", "layer_norm_epsilon", "scale_attn_weights",
         "scale_attn_by_inverse_layer_idx")
    ),
    refuses={"add_cross_attention": "has cross-attention, which ffnprobe does not read."},
    gguf="gpt2", is_cut_by_default=True, gguf_needs=_GGUF | {"attention.layer_norm_epsilon"},
    gguf_options={"feed_forward_length": "n_inner", "context_length": "n_positions"},
    published={
        "gpt2": _describe_gpt2("openai-community/gpt2", 12, 12, 768),
        "gpt2-medium": _describe_gpt2("openai-community/gpt2-medium", 24, 16, 1024),
        "gpt2-large": _describe_gpt2("openai-community/gpt2-large", 36, 20, 1280),
        "gpt2-xl": _describe_gpt2("openai-community/gpt2-xl", 48, 25, 1600),
        "distilgpt2": _describe_gpt2("distilbert/distilgpt2", 6, 12, 768),
    },
)  # fmt: skip


def _read_neo_windows(fields: "Fields") -> Windows:
    """Spell out what GPT-Neo writes as kinds and how often they come: [[["global", "local"], 12]]."""
    layers, window = fields.layers, fields.tokens("window_size", default=256)
    types = fields.values.get("attention_types") or [[["global", "local"], layers // 2]]
    kinds: list[str] = []
    try:
        for group, times in types:
            # Counted before it is written out: a number of times can be any number.
            if not 0 <= len(group) * times <= layers - len(kinds):
                raise ValueError
            kinds += list(group) * times
    except (TypeError, ValueError):
        kinds = []
    return fields.windows("attention_types", kinds, {"global": None, "local": window})


_GPT_NEO = Family(
    name="gpt_neo", classes=("GPTNeoConfig", "GPTNeoForCausalLM"),
    layout=replace(
        _GPT2.layout, fused=None, query="attn.attention.q_proj", key="attn.attention.k_proj",
        value="attn.attention.v_proj", out="attn.attention.out_proj", is_transposed=False,
    ),
    read=lambda fields: {
        "d_mlp": fields.number("intermediate_size", default=4 * fields.d_model),
        "activation": fields.activation("activation_function", "gelu_new"),
        "eps": fields.real("layer_norm_epsilon", 1e-5),
        "is_tied": fields.flag("tie_word_embeddings", True),
        "is_attention_scaled": False,
        "biases": LINEARS - {"query", "key", "value"},
        "windows": _read_neo_windows(fields),
    },
    options=frozenset(("activation_function", "layer_norm_epsilon", "attention_types", "window_size")),
)  # fmt: skip


def _rewrite_gpt_neox(config: "Config", tensors: Mapping[str, "Tensor"]) -> Rewritten:
    if "query" in config.biases:
        return {}, {}
    # TransformerLens asks for biases in any case: zeros are none.
    zeros = {
        f"{name.removesuffix('weight')}bias": weight.new_zeros(len(weight))
        for name, weight in tensors.items()
        if ".attention." in name
    }
    return {"attention_bias": True}, zeros


_GPT_NEOX = Family(
    name="gpt_neox", classes=("GPTNeoXConfig", "GPTNeoXForCausalLM"), rewrite=_rewrite_gpt_neox,
    layout=Layout(
        prefixes=("gpt_neox.",), embedding="embed_in", block="layers", attention_norm="input_layernorm",
        mlp_norm="post_attention_layernorm", fused="attention.query_key_value",
        out="attention.dense", up="mlp.dense_h_to_4h", down="mlp.dense_4h_to_h",
        final_norm="final_layer_norm", published_head="embed_out",
    ),
    read=lambda fields: {
        "d_mlp": fields.number("intermediate_size"),
        "activation": fields.activation("hidden_act", "gelu"),
        "eps": fields.real("layer_norm_eps", 1e-5),
        "is_tied": fields.flag("tie_word_embeddings", False),
        "is_parallel": fields.flag("use_parallel_residual", True),
        "biases": LINEARS if fields.flag("attention_bias", True) else LINEARS - _ATTENTION,
    },
    options=_ROTARY | {"hidden_act", "layer_norm_eps", "use_parallel_residual", "attention_bias"},
)  # fmt: skip


def _read_opt(fields: "Fields") -> Options:
    if fields.values.get("word_embed_proj_dim") is not None:
        fields.need("word_embed_proj_dim", fields.d_model)
    return {
        "d_mlp": fields.number("ffn_dim"),
        "activation": fields.activation("activation_function", "relu"),
        "is_tied": fields.flag("tie_word_embeddings", True),
        "position_offset": 2,
    }


_OPT = Family(
    name="opt", classes=("OPTConfig", "OPTForCausalLM"), read=_read_opt,
    layout=Layout(
        prefixes=("model.decoder.", "decoder."), embedding="embed_tokens", positions="embed_positions",
        block="layers", attention_norm="self_attn_layer_norm", mlp_norm="final_layer_norm",
        query="self_attn.q_proj", key="self_attn.k_proj", value="self_attn.v_proj",
        out="self_attn.out_proj", up="fc1", down="fc2", final_norm="final_layer_norm",
    ),
    options=frozenset(("activation_function", "word_embed_proj_dim")),
    needs={
        "do_layer_norm_before": True, "layer_norm_elementwise_affine": True,
        "_remove_final_layer_norm": False, "enable_bias": True,
    },
)  # fmt: skip


def _read_gated(fields: "Fields", *, is_tied: bool = False) -> Options:
    """Read what the families after Llama share: RMSNorm, rotary positions, a gate."""
    heads = fields.heads
    shared = fields.number("num_key_value_heads", default=heads)
    if heads % shared:
        raise ModelNotLoaded(
            f"{fields.where}: {heads} heads do not divide into {shared} heads of keys."
        )
    return {
        "d_mlp": fields.number("intermediate_size"),
        "activation": fields.activation("hidden_act", "silu"),
        "eps": fields.real("rms_norm_eps", 1e-6),
        "is_tied": fields.flag("tie_word_embeddings", is_tied),
        "head_width": fields.number("head_dim", default=fields.d_model // heads),
        "shared_heads": shared,
        "is_gated": True,
        "is_rms": True,
        "biases": _ATTENTION if fields.flag("attention_bias", False) else frozenset(),
    }


_GATED = _ROTARY | {"num_key_value_heads", "head_dim", "rms_norm_eps"}
_LLAMA = Family(
    name="llama", classes=("LlamaConfig", "LlamaForCausalLM"), gguf="llama", read=_read_gated,
    layout=Layout(
        prefixes=("model.",), embedding="embed_tokens", block="layers", attention_norm="input_layernorm",
        mlp_norm="post_attention_layernorm", query="self_attn.q_proj", key="self_attn.k_proj",
        value="self_attn.v_proj", out="self_attn.o_proj", gate="mlp.gate_proj", up="mlp.up_proj",
        down="mlp.down_proj", final_norm="norm",
    ),
    options=_GATED | {"hidden_act", "attention_bias"},
    needs={"mlp_bias": False},
)  # fmt: skip


def _read_window(fields: "Fields") -> int:
    return fields.tokens("sliding_window", default=4096)


def _read_windows(fields: "Fields", window: int | None, has_one: Callable[[int], bool]) -> Windows:
    """Return each layer's window: as the configuration says layer by layer, if it does."""
    if (kinds := fields.values.get("layer_types")) is None:
        return tuple(window if has_one(layer) else None for layer in range(fields.layers))
    window_of = {"full_attention": None, "sliding_attention": window}
    return fields.windows("layer_types", kinds, window_of)


def _read_mistral(fields: "Fields") -> Options:
    is_windowed = fields.values.get("sliding_window", 4096) is not None
    return _read_gated(fields) | {
        "shared_heads": fields.number("num_key_value_heads", default=8),
        "biases": frozenset(),
        "windows": (_read_window(fields) if is_windowed else None,) * fields.layers,
    }


_MISTRAL = Family(
    name="mistral", classes=("MistralConfig", "MistralForCausalLM"), read=_read_mistral,
    layout=_LLAMA.layout,
    options=_GATED | {"hidden_act", "sliding_window"},
)  # fmt: skip


def _read_qwen2(fields: "Fields") -> Options:
    window = _read_window(fields) if fields.flag("use_sliding_window", False) else None
    # 0 is a position, not a number of layers: all of them have the window.
    first = fields.values.get("max_window_layers", 28)
    first = 0 if first == 0 else fields.number("max_window_layers", default=28)
    return _read_gated(fields) | {
        "biases": frozenset(("query", "key", "value")),
        "windows": _read_windows(fields, window, lambda layer: layer >= first),
    }


_QWEN2 = Family(
    name="qwen2", classes=("Qwen2Config", "Qwen2ForCausalLM"), gguf="qwen2", read=_read_qwen2,
    layout=_LLAMA.layout,
    options=_GATED
    | {"hidden_act", "use_sliding_window", "sliding_window", "max_window_layers", "layer_types"},
)  # fmt: skip
_QWEN3 = Family(
    name="qwen3", classes=("Qwen3Config", "Qwen3ForCausalLM"), gguf="qwen3",
    layout=replace(_LLAMA.layout, query_norm="self_attn.q_norm", key_norm="self_attn.k_norm"),
    read=lambda fields: _read_qwen2(fields) | {
        "head_width": fields.number("head_dim", default=128),
        "biases": _ATTENTION if fields.flag("attention_bias", False) else frozenset(),
        "has_head_norms": True,
    },
    options=_QWEN2.options | {"attention_bias"},
)  # fmt: skip


_GEMMA2 = Family(
    name="gemma2", classes=("Gemma2Config", "Gemma2ForCausalLM"), gguf="gemma2",
    layout=replace(
        _LLAMA.layout, attention_post_norm="post_attention_layernorm",
        mlp_norm="pre_feedforward_layernorm", mlp_post_norm="post_feedforward_layernorm",
    ),
    read=lambda fields: _read_gated(fields, is_tied=True) | {
        "activation": fields.activation("hidden_activation", "gelu_pytorch_tanh"),
        "head_width": fields.number("head_dim", default=256),
        "shared_heads": fields.number("num_key_value_heads", default=4),
        "gain_offset": 1.0,
        "has_post_norms": True,
        "windows": _read_windows(fields, _read_window(fields), lambda layer: layer % 2 == 0),
        "query_scale": fields.real("query_pre_attn_scalar", 256) ** -0.5,
        "attention_cap": fields.maybe("attn_logit_softcapping", 50.0),
        "logit_cap": fields.maybe("final_logit_softcapping", 30.0),
        "embedding_scale": fields.d_model**0.5,
    },
    options=_GATED | {
        "hidden_activation", "sliding_window", "layer_types", "attention_bias",
        "query_pre_attn_scalar", "final_logit_softcapping", "attn_logit_softcapping",
    },
    gguf_needs=_GGUF_GATED
    | {"attention.sliding_window", "attn_logit_softcapping", "final_logit_softcapping"},
    refuses={"use_bidirectional_attention": "looks ahead; ffnprobe reads models that do not."},
)  # fmt: skip


def _read_gemma3(fields: "Fields") -> Options:
    window, every = _read_window(fields), fields.number("sliding_window_pattern", default=6)
    return _GEMMA2.read(fields) | {
        "has_head_norms": True,
        "windows": _read_windows(fields, window, lambda layer: (layer + 1) % every != 0),
        "attention_cap": fields.maybe("attn_logit_softcapping"),
        "logit_cap": fields.maybe("final_logit_softcapping"),
    }


_GEMMA3 = replace(
    _GEMMA2,
    name="gemma3_text", classes=("Gemma3TextConfig", "Gemma3ForCausalLM"), gguf="gemma3",
    layout=replace(_GEMMA2.layout, query_norm="self_attn.q_norm", key_norm="self_attn.k_norm"),
    read=_read_gemma3, gguf_needs=_GGUF_GATED | {"attention.sliding_window", "rope.freq_base"},
    options=_GEMMA2.options | {"sliding_window_pattern"},
)  # fmt: skip

FAMILIES = {
    family.name: family
    for family in (_GPT2, _GPT_NEO, _GPT_NEOX, _OPT, _LLAMA, _MISTRAL, _QWEN2, _QWEN3, _GEMMA2, _GEMMA3)
}  # fmt: skip
# By what GGUF files call them.
ARCHITECTURES = {family.gguf: family for family in FAMILIES.values() if family.gguf}

"""The families this package reads, each turned from its Hugging Face fields into a `Config`.

A family stands here once its numbers are proven against Hugging Face's own code: logits, scores,
activations, accounts and sweeps. What differs between families is said in the configuration; the
rooms after this one do not know them by name. Anything else is refused by name.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ffnprobe.errors import ModelNotLoaded
from ffnprobe.inputs import read_json
from ffnprobe.models.config import LINEARS, Config
from ffnprobe.models.fields import MOST_LAYERS, MOST_TOKENS, Fields
from ffnprobe.models.options import UNEVEN

# What decides how a file is loaded, not what the model is.
_NOT_OURS = frozenset(
    ("auto_map", "architectures", "dtype", "torch_dtype", "attn_implementation", "_name_or_path",
     "_attn_implementation", "transformers_version", "model_type", "quantization_config")
)  # fmt: skip
_ATTENTION = frozenset(("query", "key", "value", "out"))
_MLP = LINEARS - _ATTENTION


def read_config(folder: Path) -> Config:
    """Read a folder's `config.json`, refusing what this package is not proven to get right."""
    path = folder / "config.json"
    try:
        values = read_json(path, refuse=ModelNotLoaded)
    except FileNotFoundError:
        raise ModelNotLoaded(
            f"{folder} has no config.json.",
            remedy="a folder in Hugging Face layout: config.json, model.safetensors, tokenizer.json",
        ) from None
    if not isinstance(values, dict):
        raise ModelNotLoaded(f"{path} is not a configuration: it holds no object.")
    return parse_config(values, where=str(path))


def parse_config(values: Mapping[str, Any], *, where: str) -> Config:
    """Turn the fields of a Hugging Face configuration into a `Config`, or refuse it by name."""
    family = values.get("model_type")
    experts = [name for name in values if "expert" in name and values[name]]
    if experts or "moe" in str(family) or family == "mixtral":
        raise ModelNotLoaded(
            f'{where} is a mixture of experts ("{family}"): which neurons run depends on the token, '
            "and ffnprobe does not read that.",
            remedy=f"a dense model: {', '.join(FAMILIES)}",
        )
    if not isinstance(family, str) or family not in FAMILIES:
        raise ModelNotLoaded(
            f'{where} is of architecture "{family}", which ffnprobe does not read.',
            remedy=f"a model of {', '.join(FAMILIES)}",
        )
    if how := values.get("quantization_config"):
        method = how.get("quant_method", "unknown") if isinstance(how, Mapping) else how
        raise ModelNotLoaded(
            f"{where}: the weights are quantised ({method}), which ffnprobe does not undo.",
            remedy="the same model unquantised, or as a .gguf file",
        )
    if values.get(UNEVEN):
        raise ModelNotLoaded(f"{where}: {UNEVEN} is set; ffnprobe reads models of equal layers.")
    fields = Fields(values, where)
    d_model = fields.number("n_embd", "hidden_size")
    heads = fields.number("n_head", "num_attention_heads", "num_heads")
    if values.get("head_dim") is None and d_model % heads:
        raise ModelNotLoaded(f"{where}: d_model {d_model} does not divide into {heads} heads.")
    layers = fields.number("n_layer", "num_hidden_layers", "num_layers", most=MOST_LAYERS)
    bos = values.get("bos_token_id", 50256 if family == "gpt2" else None)
    return Config(
        layers=layers,
        heads=heads,
        d_model=d_model,
        positions=fields.number(
            "n_positions", "n_ctx", "max_position_embeddings", most=MOST_TOKENS
        ),
        vocab=fields.number("vocab_size", most=MOST_TOKENS),
        bos=bos if isinstance(bos, int) else None,
        family=family,
        native={name: value for name, value in values.items() if name not in _NOT_OURS},
        **FAMILIES[family](fields, layers, d_model, heads),
    )


def _gpt2(fields: Fields, layers: int, d_model: int, heads: int) -> dict[str, Any]:
    if fields.flag("add_cross_attention", False):
        raise ModelNotLoaded(f"{fields.where} has cross-attention, which ffnprobe does not read.")
    return {
        "d_mlp": fields.number("n_inner", default=4 * d_model),
        "activation": fields.activation("activation_function", "gelu_new"),
        "eps": fields.real("layer_norm_epsilon", 1e-5),
        "is_tied": fields.flag("tie_word_embeddings", True),
        "is_attention_scaled": fields.flag("scale_attn_weights", True),
        "is_attention_scaled_by_layer": fields.flag("scale_attn_by_inverse_layer_idx", False),
    }


def _gpt_neo(fields: Fields, layers: int, d_model: int, heads: int) -> dict[str, Any]:
    kinds = _neo_kinds(fields, layers)
    window = fields.number("window_size", default=256, most=MOST_TOKENS)
    return {
        "d_mlp": fields.number("intermediate_size", default=4 * d_model),
        "activation": fields.activation("activation_function", "gelu_new"),
        "eps": fields.real("layer_norm_epsilon", 1e-5),
        "is_tied": fields.flag("tie_word_embeddings", True),
        "is_attention_scaled": False,
        "biases": LINEARS - {"query", "key", "value"},
        "windows": tuple(window if kind == "local" else None for kind in kinds),
    }


def _neo_kinds(fields: Fields, layers: int) -> list[str]:
    """Spell out what GPT-Neo writes as kinds and how often they come: [[["global", "local"], 12]]."""
    kinds: list[str] = []
    refused = ModelNotLoaded(f"{fields.where}: attention_types do not name {layers} layers.")
    try:
        said = fields.values.get("attention_types") or [[["global", "local"], layers // 2]]
        for some, times in said:
            # Counted before it is written out: a number of times can be any number.
            if not 0 <= len(some) * times <= layers - len(kinds):
                raise refused
            kinds += list(some) * times
    except (TypeError, ValueError):
        raise refused from None
    if len(kinds) != layers or not all(kind in ("global", "local") for kind in kinds):
        raise refused
    return kinds


def _gpt_neox(fields: Fields, layers: int, d_model: int, heads: int) -> dict[str, Any]:
    return {
        "d_mlp": fields.number("intermediate_size"),
        "activation": fields.activation("hidden_act", "gelu"),
        "eps": fields.real("layer_norm_eps", 1e-5),
        "is_tied": fields.flag("tie_word_embeddings", False),
        "is_parallel": fields.flag("use_parallel_residual", True),
        "biases": LINEARS if fields.flag("attention_bias", True) else _MLP,
    }


def _opt(fields: Fields, layers: int, d_model: int, heads: int) -> dict[str, Any]:
    fields.need("do_layer_norm_before", True)
    fields.need("layer_norm_elementwise_affine", True)
    fields.need("_remove_final_layer_norm", False)
    fields.need("enable_bias", True)
    if fields.values.get("word_embed_proj_dim") is not None:
        fields.need("word_embed_proj_dim", d_model)
    return {
        "d_mlp": fields.number("ffn_dim"),
        "activation": fields.activation("activation_function", "relu"),
        "is_tied": fields.flag("tie_word_embeddings", True),
        "position_offset": 2,
    }


def _gated(
    fields: Fields, layers: int, d_model: int, heads: int, *, is_tied: bool = False
) -> dict[str, Any]:
    """Read what the families after Llama share: RMSNorm, rotary positions, a gate."""
    known: dict[str, Any] = {
        "d_mlp": fields.number("intermediate_size"),
        "activation": fields.activation("hidden_act", "silu"),
        "eps": fields.real("rms_norm_eps", 1e-6),
        "is_tied": fields.flag("tie_word_embeddings", is_tied),
        "head_width": fields.number("head_dim", default=d_model // heads),
        "shared_heads": fields.number("num_key_value_heads", default=heads),
        "is_gated": True,
        "is_rms": True,
        "biases": _ATTENTION if fields.flag("attention_bias", False) else frozenset(),
    }
    if heads % known["shared_heads"]:
        raise ModelNotLoaded(
            f"{fields.where}: {heads} heads do not divide into {known['shared_heads']} heads of keys."
        )
    return known


def _llama(fields: Fields, layers: int, d_model: int, heads: int) -> dict[str, Any]:
    known = _gated(fields, layers, d_model, heads)
    fields.need("mlp_bias", False)
    return known


def _mistral(fields: Fields, layers: int, d_model: int, heads: int) -> dict[str, Any]:
    known = _gated(fields, layers, d_model, heads)
    is_windowed = fields.values.get("sliding_window", 4096) is not None
    window = _window(fields) if is_windowed else None
    return known | {
        "shared_heads": fields.number("num_key_value_heads", default=8),
        "biases": frozenset(),
        "windows": (window,) * layers,
    }


def _qwen2(fields: Fields, layers: int, d_model: int, heads: int) -> dict[str, Any]:
    known = _gated(fields, layers, d_model, heads)
    window_used = _window(fields) if fields.flag("use_sliding_window", False) else None
    # 0 is a position, not a number of layers: all of them have the window.
    first = fields.values.get("max_window_layers", 28)
    first = 0 if first == 0 else fields.number("max_window_layers", default=28)
    windows = [window_used if layer >= first else None for layer in range(layers)]
    return known | {
        "biases": frozenset(("query", "key", "value")),
        "windows": _windows(fields, windows, window_used),
    }


def _qwen3(fields: Fields, layers: int, d_model: int, heads: int) -> dict[str, Any]:
    known = _qwen2(fields, layers, d_model, heads)
    return known | {
        "head_width": fields.number("head_dim", default=128),
        "biases": _ATTENTION if fields.flag("attention_bias", False) else frozenset(),
        "has_head_norms": True,
    }


def _gemma2(fields: Fields, layers: int, d_model: int, heads: int) -> dict[str, Any]:
    if fields.flag("use_bidirectional_attention", False):
        raise ModelNotLoaded(f"{fields.where} looks ahead; ffnprobe reads models that do not.")
    known = _gated(fields, layers, d_model, heads, is_tied=True)
    window = _window(fields)
    windows = [window if (layer + 1) % 2 else None for layer in range(layers)]
    return known | {
        "activation": fields.activation("hidden_activation", "gelu_pytorch_tanh"),
        "head_width": fields.number("head_dim", default=256),
        "shared_heads": fields.number("num_key_value_heads", default=4),
        "gain_offset": 1.0,
        "has_post_norms": True,
        "windows": _windows(fields, windows, window),
        "query_scale": fields.real("query_pre_attn_scalar", 256) ** -0.5,
        "attention_cap": fields.maybe("attn_logit_softcapping", 50.0),
        "logit_cap": fields.maybe("final_logit_softcapping", 30.0),
        "embedding_scale": d_model**0.5,
    }


def _gemma3(fields: Fields, layers: int, d_model: int, heads: int) -> dict[str, Any]:
    known = _gemma2(fields, layers, d_model, heads)
    window = _window(fields)
    every = fields.number("sliding_window_pattern", default=6)
    windows = [window if (layer + 1) % every else None for layer in range(layers)]
    return known | {
        "has_head_norms": True,
        "windows": _windows(fields, windows, window),
        "attention_cap": fields.maybe("attn_logit_softcapping"),
        "logit_cap": fields.maybe("final_logit_softcapping"),
    }


def _window(fields: Fields) -> int:
    return fields.number("sliding_window", default=4096, most=MOST_TOKENS)


def _windows(
    fields: Fields, windows: list[int | None], window: int | None
) -> tuple[int | None, ...]:
    """Return each layer's window: as the configuration says layer by layer, if it does."""
    allowed = ("full_attention", "sliding_attention")
    kinds = fields.kinds("layer_types", allowed, len(windows))
    if kinds is None:
        return tuple(windows)
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


FAMILIES: dict[str, Callable[[Fields, int, int, int], dict[str, Any]]] = {
    "gpt2": _gpt2,
    "gpt_neo": _gpt_neo,
    "gpt_neox": _gpt_neox,
    "opt": _opt,
    "llama": _llama,
    "mistral": _mistral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
}

"""A GPT-2's measurements, read from its `config.json`, and where its parameters are.

Nothing here loads weights or torch: shapes and parameter counts follow from the configuration alone.

>>> small = Config(layers=12, heads=12, d_model=768, d_mlp=3072, positions=1024, vocab=50257)
>>> f"{small.parameters():,}"
'124,439,808'
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ffnprobe.errors import ModelNotLoaded

ACTIVATIONS = ("gelu_new", "gelu", "relu", "silu")
# Names of one function: both spellings stand in published configurations.
_SYNONYMS = {"gelu_pytorch_tanh": "gelu_new", "swish": "silu"}


@dataclass(frozen=True)
class Config:
    """The measurements of one GPT-2-architecture model."""

    layers: int
    heads: int
    d_model: int
    d_mlp: int
    positions: int
    vocab: int
    activation: str = "gelu_new"
    eps: float = 1e-5
    is_tied: bool = True
    bos: int | None = 50256
    is_attention_scaled: bool = True
    is_attention_scaled_by_layer: bool = False

    @property
    def d_head(self) -> int:
        return self.d_model // self.heads

    @property
    def neurons(self) -> int:
        """How many neurons the model has over all layers."""
        return self.layers * self.d_mlp

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name every tensor of the checkpoint with its shape, as GPT-2's own code lays it out."""
        d, m = self.d_model, self.d_mlp
        named: dict[str, tuple[int, ...]] = {"wte.weight": (self.vocab, d)}
        named["wpe.weight"] = (self.positions, d)
        for layer in range(self.layers):
            block = {
                "ln_1.weight": (d,), "ln_1.bias": (d,),
                "attn.c_attn.weight": (d, 3 * d), "attn.c_attn.bias": (3 * d,),
                "attn.c_proj.weight": (d, d), "attn.c_proj.bias": (d,),
                "ln_2.weight": (d,), "ln_2.bias": (d,),
                "mlp.c_fc.weight": (d, m), "mlp.c_fc.bias": (m,),
                "mlp.c_proj.weight": (m, d), "mlp.c_proj.bias": (d,),
            }  # fmt: skip
            named |= {f"h.{layer}.{name}": shape for name, shape in block.items()}
        named |= {"ln_f.weight": (d,), "ln_f.bias": (d,)}
        if not self.is_tied:
            named["lm_head.weight"] = (self.vocab, d)
        return named

    def parts(self) -> dict[str, int]:
        """Count the parameters of each part of the model."""
        counts = dict.fromkeys(
            ("token embedding", "position embedding", "attention", "MLP", "norms", "head"), 0
        )
        kinds = {"wte": "token embedding", "wpe": "position embedding", "lm_head": "head",
                 "attn": "attention", "mlp": "MLP", "ln_1": "norms", "ln_2": "norms", "ln_f": "norms"}  # fmt: skip
        for name, shape in self.shapes().items():
            words = name.split(".")
            size = 1
            for length in shape:
                size *= length
            counts[kinds[words[2] if words[0] == "h" else words[0]]] += size
        if self.is_tied:
            del counts["head"]
        return counts

    def parameters(self) -> int:
        """Count all parameters; a tied head counts once."""
        return sum(self.parts().values())


def read_config(folder: Path) -> Config:
    """Read a folder's `config.json`, refusing what is not a GPT-2 this package gets right."""
    path = folder / "config.json"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelNotLoaded(
            f"{folder} has no config.json.",
            remedy="a folder in Hugging Face layout: config.json, model.safetensors, tokenizer.json",
        ) from None
    except (UnicodeDecodeError, json.JSONDecodeError, OSError) as error:
        raise ModelNotLoaded(f"{path} cannot be read: {error}.") from None
    if not isinstance(values, dict):
        raise ModelNotLoaded(f"{path} is not a configuration: it holds no object.")
    return parse_config(values, where=str(path))


def parse_config(values: Mapping[str, Any], *, where: str) -> Config:
    """Turn the fields of a Hugging Face GPT-2 configuration into a `Config`."""
    family = values.get("model_type")
    if family != "gpt2":
        raise ModelNotLoaded(
            f'{where} is of architecture "{family}"; ffnprobe reads "gpt2".',
            remedy="gpt2, gpt2-medium, gpt2-large, gpt2-xl, distilgpt2, pocket or a GPT-2 folder",
        )
    if values.get("add_cross_attention"):
        raise ModelNotLoaded(f"{where} has cross-attention, which ffnprobe does not read.")

    def number(*names: str) -> int:
        for name in names:
            value = values.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
            if value is not None:
                raise ModelNotLoaded(f"{where}: {name} is {value!r}, not a positive whole number.")
        raise ModelNotLoaded(f"{where} does not say {names[0]}.")

    d_model = number("n_embd", "hidden_size")
    heads = number("n_head", "num_attention_heads")
    if d_model % heads:
        raise ModelNotLoaded(f"{where}: n_embd {d_model} does not divide into n_head {heads}.")
    named = values.get("activation_function", "gelu_new")
    activation = _SYNONYMS.get(named, named)
    if activation not in ACTIVATIONS:
        raise ModelNotLoaded(
            f'{where}: activation function "{named}" is not one ffnprobe gets right.',
            remedy=f"a model with {', '.join(ACTIVATIONS)}",
        )
    bos = values.get("bos_token_id", 50256)
    return Config(
        layers=number("n_layer", "num_hidden_layers"),
        heads=heads,
        d_model=d_model,
        d_mlp=4 * d_model if values.get("n_inner") is None else number("n_inner"),
        positions=number("n_positions", "n_ctx", "max_position_embeddings"),
        vocab=number("vocab_size"),
        activation=activation,
        eps=float(values.get("layer_norm_epsilon", 1e-5)),
        is_tied=bool(values.get("tie_word_embeddings", True)),
        bos=bos if isinstance(bos, int) else None,
        is_attention_scaled=bool(values.get("scale_attn_weights", True)),
        is_attention_scaled_by_layer=bool(values.get("scale_attn_by_inverse_layer_idx", False)),
    )


def _published(layers: int, heads: int, d_model: int) -> Config:
    return Config(layers, heads, d_model, 4 * d_model, positions=1024, vocab=50257)


# Known without a download, so that `params` and `models` answer offline.
PUBLISHED = {
    "gpt2": _published(12, 12, 768),
    "gpt2-medium": _published(24, 16, 1024),
    "gpt2-large": _published(36, 20, 1280),
    "gpt2-xl": _published(48, 25, 1600),
    "distilgpt2": _published(6, 12, 768),
}

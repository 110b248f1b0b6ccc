"""A model's measurements, read field by field from its configuration, and where its parameters are.

Nothing here loads weights or torch: shapes and parameter counts follow from the configuration alone.

>>> small = Config(layers=12, heads=12, d_model=768, d_mlp=3072, positions=1024, vocab=50257)
>>> f"{small.parameters():,}"
'124,439,808'
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf, prod
from pathlib import Path
from typing import Any

from ffnprobe.arguments import show
from ffnprobe.errors import ModelNotLoaded
from ffnprobe.files import read_json
from ffnprobe.models.families import DEFAULT, FAMILIES, LINEARS, Layout, Windows

# The part of the model a tensor belongs to, its name, its shape.
Tensors = Iterator[tuple[str, str, tuple[int, ...]]]
# No published model comes near: what is larger is a mistake, and would be allocated before it shows.
MOST_LAYERS, MOST_WIDE, MOST_TOKENS = 10_000, 2**20, 2**26
ACTIVATIONS = ("gelu_new", "gelu", "relu", "silu")
# Names of one function: all spellings stand in published configurations.
_SYNONYMS = {"gelu_pytorch_tanh": "gelu_new", "gelu_fast": "gelu_new", "swish": "silu"}
# What decides how a file is loaded, not what the model is.
_NOT_OURS = frozenset(
    ("auto_map", "architectures", "dtype", "torch_dtype", "attn_implementation", "_name_or_path",
     "_attn_implementation", "transformers_version", "model_type", "quantization_config")
)  # fmt: skip


@dataclass(frozen=True)
class Fields:
    """A configuration's fields, and where they stand."""

    values: Mapping[str, Any]
    where: str

    def _refused(self, name: str, why: str) -> ModelNotLoaded:
        return ModelNotLoaded(f"{self.where}: {name} is {show(self.values[name])}{why}")

    @property
    def layers(self) -> int:
        return self.number("n_layer", "num_hidden_layers", "num_layers", most=MOST_LAYERS)

    @property
    def d_model(self) -> int:
        return self.number("n_embd", "hidden_size")

    @property
    def heads(self) -> int:
        return self.number("n_head", "num_attention_heads", "num_heads")

    def number(self, *names: str, default: int | None = None, most: int = MOST_WIDE) -> int:
        """Return what one of these names of a field says, a positive whole number up to a bound."""
        stated = {name: self.values[name] for name in names if self.values.get(name) is not None}
        for name, value in stated.items():
            if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
                raise self._refused(name, ", not a positive whole number.")
            if value > most:
                raise self._refused(name, f"; ffnprobe reads at most {most:,}.")
        if len({*stated.values()}) > 1:
            listed = " and ".join(f"{name} is {value}" for name, value in stated.items())
            remedy = "the right one of them alone"
            raise ModelNotLoaded(f"{self.where}: {listed}, which name one thing.", remedy=remedy)
        number: int | None = next(iter(stated.values()), default)
        if number is None:
            raise ModelNotLoaded(f"{self.where} does not say {names[0]}.")
        return number

    def tokens(self, *names: str, default: int | None = None) -> int:
        return self.number(*names, default=default, most=MOST_TOKENS)

    def real(self, name: str, default: float) -> float:
        return self.maybe(name) or default

    def maybe(self, name: str, default: float | None = None) -> float | None:
        """Return a field as a positive float, None where it is set to null."""
        value = self.values.get(name, default)
        if value is None:
            return None
        is_real = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_real or not 0 < value < inf:
            raise self._refused(name, ", not a positive number.")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._refused(name, ", not true or false.")
        return value

    def windows(self, name: str, kinds: object, window_of: Mapping[str, int | None]) -> Windows:
        """Return each layer's window, by the kind that a field names it."""
        named = kinds if isinstance(kinds, list) else []
        # A list is looked through, since what is in a configuration may have no hash.
        if len(named) != self.layers or not all(kind in list(window_of) for kind in named):
            raise ModelNotLoaded(f"{self.where}: {name} do not name {self.layers} layers.")
        return tuple(window_of[kind] for kind in named)

    def need(self, name: str, wanted: Any) -> None:
        """Refuse a field set to what is not proven right."""
        value = self.values.get(name, wanted)
        if value != wanted:
            raise ModelNotLoaded(
                f"{self.where}: {name} is {value!r}, which ffnprobe is not proven to get right.",
                remedy=f"a model with {name} {wanted!r}",
            )

    def activation(self, name: str, default: str) -> str:
        """Return the activation function's name in our words."""
        named = str(self.values.get(name) or default)
        activation = _SYNONYMS.get(named, named)
        if activation not in ACTIVATIONS:
            raise ModelNotLoaded(
                f'{self.where}: activation function "{named}" is not one ffnprobe gets right.',
                remedy=f"a model with {', '.join(ACTIVATIONS)}",
            )
        return activation


@dataclass(frozen=True)
class Config:
    """The measurements of one model; what is not said is as GPT-2 has it."""

    layers: int
    heads: int
    d_model: int
    d_mlp: int
    positions: int
    vocab: int
    activation: str = "gelu_new"
    eps: float = 1e-5
    is_tied: bool = True
    bos: int | None = FAMILIES[DEFAULT].bos
    is_attention_scaled: bool = True
    is_attention_scaled_by_layer: bool = False
    family: str = DEFAULT
    head_width: int | None = None  # d_model / heads where it is not said
    shared_heads: int | None = None  # keys and values: as many as heads where it is not said
    is_gated: bool = False
    is_parallel: bool = False  # attention and MLP read the same stream
    is_rms: bool = False
    gain_offset: float = 0.0  # 1 where a norm's gain is kept as its distance from 1
    has_post_norms: bool = False  # attention and MLP write through a norm of their own
    has_head_norms: bool = False  # queries and keys are normalised
    biases: frozenset[str] = LINEARS
    windows: Windows = ()  # empty: every layer sees all the way
    query_scale: float | None = None
    attention_cap: float | None = None
    logit_cap: float | None = None
    embedding_scale: float = 1.0
    position_offset: int = 0
    # What Hugging Face's own code builds the network from.
    native: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def d_head(self) -> int:
        return self.head_width or self.d_model // self.heads

    @property
    def kv_heads(self) -> int:
        """How many heads of keys and values there are, each read by one head or several."""
        return self.shared_heads or self.heads

    def attention_scale(self, layer: int) -> float:
        """What the products of queries and keys are multiplied by in a layer."""
        if self.query_scale is not None:
            return self.query_scale
        scale = self.d_head**-0.5 if self.is_attention_scaled else 1.0
        return scale / (layer + 1) if self.is_attention_scaled_by_layer else scale

    @property
    def neurons(self) -> int:
        return self.layers * self.d_mlp

    @property
    def layout(self) -> Layout:
        return FAMILIES[self.family].layout

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name every tensor of the checkpoint with its shape, as the family's own code lays it out."""
        return {name: shape for _, name, shape in self._tensors()}

    def parts(self) -> dict[str, int]:
        """Count the parameters of each part of the model; a tied head counts once."""
        parts = ("token embedding", "position embedding", "attention", "MLP", "norms", "head")
        counts = dict.fromkeys(parts, 0)
        for part, _, shape in self._tensors():
            counts[part] += prod(shape)
        return {part: count for part, count in counts.items() if count}

    def _tensors(self) -> Tensors:
        lay, d = self.layout, self.d_model
        yield "token embedding", f"{lay.embedding}.weight", (self.vocab, d)
        if lay.positions:
            rows = self.positions + self.position_offset
            yield "position embedding", f"{lay.positions}.weight", (rows, d)
        for layer in range(self.layers):
            for part, name, shape in self._block():
                yield part, lay.of(layer, name), shape
        yield from self._norms(lay.final_norm)
        if not self.is_tied:
            yield "head", f"{lay.head}.weight", (self.vocab, d)

    def _block(self) -> Tensors:
        lay, d, m = self.layout, self.d_model, self.d_mlp
        wide, narrow = self.heads * self.d_head, self.kv_heads * self.d_head
        yield from self._norms(lay.attention_norm)
        yield from self._linears(
            "attention", (lay.fused, "query", d, wide + 2 * narrow), (lay.query, "query", d, wide),
            (lay.key, "key", d, narrow), (lay.value, "value", d, narrow), (lay.out, "out", wide, d),
        )  # fmt: skip
        yield from self._norms(lay.attention_post_norm, lay.mlp_norm)
        yield from self._linears(
            "MLP", (lay.gate, "gate", d, m), (lay.up, "up", d, m), (lay.down, "down", m, d)
        )
        yield from self._norms(lay.mlp_post_norm)
        for name in (lay.query_norm, lay.key_norm) if self.has_head_norms else ():
            yield "norms", f"{name}.weight", (self.d_head,)

    def _linears(self, part: str, *linears: tuple[str | None, str, int, int]) -> Tensors:
        for name, bias, wide, high in linears:
            if name:
                shape = (wide, high) if self.layout.is_transposed else (high, wide)
                yield part, f"{name}.weight", shape
                if bias in self.biases:
                    yield part, f"{name}.bias", (high,)

    def _norms(self, *names: str | None) -> Tensors:
        kinds = ("weight",) if self.is_rms else ("weight", "bias")
        for name in filter(None, names):
            for kind in kinds:
                yield "norms", f"{name}.{kind}", (self.d_model,)

    def parameters(self) -> int:
        return sum(self.parts().values())


def read_config(folder: Path) -> Config:
    """Read a folder's `config.json`, refusing what this package is not proven to get right."""
    path = folder / "config.json"
    try:
        values = read_json(path, refuse=ModelNotLoaded)
    except FileNotFoundError:
        remedy = "a folder in Hugging Face layout: config.json, model.safetensors, tokenizer.json"
        raise ModelNotLoaded(f"{folder} has no config.json.", remedy=remedy) from None
    if not isinstance(values, dict):
        raise ModelNotLoaded(f"{path} is not a configuration: it holds no object.")
    return parse_config(values, where=str(path))


def parse_config(values: Mapping[str, Any], *, where: str) -> Config:
    """Turn the fields of a Hugging Face configuration into a `Config`, or refuse it by name."""
    name = values.get("model_type")
    has_experts = any("expert" in option and value for option, value in values.items())
    if has_experts or "moe" in str(name) or name == "mixtral":
        raise ModelNotLoaded(
            f'{where} is a mixture of experts ("{name}"): which neurons run depends on the token, '
            "and ffnprobe does not read that.",
            remedy=f"a dense model: {', '.join(FAMILIES)}",
        )
    if not isinstance(name, str) or name not in FAMILIES:
        raise ModelNotLoaded(
            f'{where} is of architecture "{name}", which ffnprobe does not read.',
            remedy=f"a model of {', '.join(FAMILIES)}",
        )
    if how := values.get("quantization_config"):
        method = how.get("quant_method", "unknown") if isinstance(how, Mapping) else how
        raise ModelNotLoaded(
            f"{where}: the weights are quantised ({method}), which ffnprobe does not undo.",
            remedy="the same model unquantised, or as a .gguf file",
        )
    if values.get("per_layer_config"):
        raise ModelNotLoaded(
            f"{where}: per_layer_config is set; ffnprobe reads models of equal layers."
        )
    fields = Fields(values, where)
    d_model, heads = fields.d_model, fields.heads
    if values.get("head_dim") is None and d_model % heads:
        raise ModelNotLoaded(f"{where}: d_model {d_model} does not divide into {heads} heads.")
    family = FAMILIES[name]
    for option, why in family.refuses.items():
        if fields.flag(option, False):
            raise ModelNotLoaded(f"{where} {why}")
    for option, wanted in family.needs.items():
        fields.need(option, wanted)
    bos = values.get("bos_token_id", family.bos)
    if bos is not None and (type(bos) is not int or bos < 0):
        remedy = "null, if there is no BOS"
        raise ModelNotLoaded(f"{where}: bos_token_id is {show(bos)}, not a token.", remedy=remedy)
    return Config(
        layers=fields.layers, heads=heads, d_model=d_model,
        positions=fields.tokens("n_positions", "n_ctx", "max_position_embeddings"),
        vocab=fields.tokens("vocab_size"), bos=bos, family=name,
        native={option: value for option, value in values.items() if option not in _NOT_OURS},
        **family.read(fields),
    )  # fmt: skip


def refuse_config(
    where: str, error: Exception, why: str = "its configuration is refused"
) -> ModelNotLoaded:
    """Say why transformers refuses a configuration, in the last line of its error."""
    return ModelNotLoaded(f"{where}: {why}: {str(error).strip().splitlines()[-1].strip()}")


# Known without a download, so that `params` and `models` answer offline.
PUBLISHED = {
    name: parse_config(values | {"model_type": family.name}, where=name)
    for family in FAMILIES.values()
    for name, (_, values) in family.published.items()
}

"""A model's measurements, and where its parameters are.

Nothing here loads weights or torch: shapes and parameter counts follow from the configuration alone.

>>> small = Config(layers=12, heads=12, d_model=768, d_mlp=3072, positions=1024, vocab=50257)
>>> f"{small.parameters():,}"
'124,439,808'
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ffnprobe.models.layouts import count_parts, name_shapes

if TYPE_CHECKING:
    import pandas as pd

LINEARS = frozenset(("query", "key", "value", "out", "gate", "up", "down"))


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
    bos: int | None = 50256
    is_attention_scaled: bool = True
    is_attention_scaled_by_layer: bool = False
    family: str = "gpt2"
    head_width: int | None = None  # d_model / heads where it is not said
    shared_heads: int | None = None  # keys and values: as many as heads where it is not said
    is_gated: bool = False
    is_parallel: bool = False  # attention and MLP read the same stream
    is_rms: bool = False
    gain_offset: float = 0.0  # 1 where a norm's gain is kept as its distance from 1
    has_post_norms: bool = False  # attention and MLP write through a norm of their own
    has_head_norms: bool = False  # queries and keys are normalised
    biases: frozenset[str] = LINEARS
    windows: tuple[
        int | None, ...
    ] = ()  # by layer, how far back attention sees; empty: all the way
    query_scale: float | None = None
    attention_cap: float | None = None
    logit_cap: float | None = None
    embedding_scale: float = 1.0
    position_offset: int = 0
    # What Hugging Face's own code builds the network from.
    native: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def d_head(self) -> int:
        """The width of a head."""
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

    def window(self, layer: int) -> int | None:
        """How far back a layer's attention sees; None if all the way."""
        return self.windows[layer] if self.windows else None

    @property
    def neurons(self) -> int:
        """How many neurons the model has over all layers."""
        return self.layers * self.d_mlp

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name every tensor of the checkpoint with its shape, as the family's own code lays it out."""
        return name_shapes(self)

    def parts(self) -> dict[str, int]:
        """Count the parameters of each part of the model."""
        return count_parts(self)

    def parameters(self) -> int:
        """Count all parameters; a tied head counts once."""
        return sum(self.parts().values())

    def table_parts(self) -> "pd.DataFrame":
        """Table each part's parameters, its share of all, and its share of what is not embedding."""
        import pandas as pd

        parts, total = self.parts(), self.parameters()
        embeddings = {name for name in parts if name.endswith("embedding") or name == "head"}
        inner = sum(count for name, count in parts.items() if name not in embeddings)
        counts = parts | {"without embeddings": inner, "all": total}
        rows = [
            (name, count, count / total, None if name in {*embeddings, "all"} else count / inner)
            for name, count in counts.items()
        ]
        columns = ["part", "parameters", "share", "share_without_embeddings"]
        return pd.DataFrame(rows, columns=columns)


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

"""The model being probed: folded weights as questions and answers, each made when first asked for.

Layout: `[layer neuron d_model]` for both questions and answers. (In GPT-2's own Conv1D and in
TransformerLens these are columns of W_in and rows of W_out.)

    question     q_n = γ₂ ⊙ W_in[:, n], centred over d_model
    bias         c_n = b_in[n] + β₂ · W_in[:, n]
    answer       w_n = W_out[n, :]
    unembedding  u_t = γ_f ⊙ W_U[:, t], centred over d_model; bias d_t = β_f · W_U[:, t]

>>> import ffnprobe as fp
>>> model = fp.load("pocket")
>>> model.questions.shape == model.answers.shape
True
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from types import MappingProxyType

import torch
from einops import rearrange, reduce
from jaxtyping import Float
from torch import Tensor

from ffnprobe.errors import ModelNotLoaded
from ffnprobe.models.checkpoint import fingerprint
from ffnprobe.models.config import Config
from ffnprobe.models.folding import check_centred, fold_reader
from ffnprobe.models.provenance import Provenance
from ffnprobe.models.sources import Source
from ffnprobe.models.vocab import Vocab

ACTIVATION_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu_new": partial(torch.nn.functional.gelu, approximate="tanh"),
    "gelu": torch.nn.functional.gelu,
    "relu": torch.relu,
    "silu": torch.nn.functional.silu,
}


@dataclass(frozen=True)
class Attention:
    """One layer's attention, reading x̂ (LayerNorm folded in) and writing to the residual stream."""

    query: Float[Tensor, "head d_head d_model"]
    key: Float[Tensor, "head d_head d_model"]
    value: Float[Tensor, "head d_head d_model"]
    query_bias: Float[Tensor, "head d_head"]
    key_bias: Float[Tensor, "head d_head"]
    value_bias: Float[Tensor, "head d_head"]
    out: Float[Tensor, "head d_head d_model"]
    out_bias: Float[Tensor, " d_model"]
    scale: float


@dataclass(frozen=True, eq=False)
class Model:
    """A pretrained GPT-2, its weights mapped as they are on disk and folded in fp32 on demand.

    >>> import ffnprobe as fp
    >>> model = fp.load("pocket")
    >>> list(model.questions.shape), list(model.unembedding.shape)
    ([6, 768, 192], [6000, 192])
    """

    name: str
    source: Source
    config: Config
    vocab: Vocab
    weights: Mapping[str, Tensor]
    fingerprint: str
    device: torch.device

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", MappingProxyType(dict(self.weights)))

    def __repr__(self) -> str:
        c = self.config
        return (
            f"Model({self.name}: {c.layers} layers × {c.d_mlp} neurons × {c.d_model}, "
            f"vocabulary {c.vocab}, {self.fingerprint[:8]})"
        )

    def raw(self, name: str) -> Tensor:
        """Return a weight as it is on disk, in fp32, on the model's device."""
        return self.weights[name].to(device=self.device, dtype=torch.float32)

    def is_unchanged(self) -> bool:
        """Hash the weights again and compare."""
        return fingerprint(self.weights) == self.fingerprint

    def provenance(self, **known: object) -> Provenance:
        """Start a result's provenance."""
        return Provenance(self.name, str(self.source), self.fingerprint, **known)  # type: ignore[arg-type]

    @cached_property
    def activate(self) -> Callable[[Tensor], Tensor]:
        """The activation function of this model's FFN layers."""
        return ACTIVATION_FUNCTIONS[self.config.activation]

    @cached_property
    def _folded(self) -> tuple[Tensor, Tensor]:
        c = self.config
        rows = torch.empty(c.layers, c.d_mlp, c.d_model, device=self.device)
        biases = torch.empty(c.layers, c.d_mlp, device=self.device)
        for layer in range(c.layers):
            rows[layer], biases[layer] = self._read_layer_norm(layer, "ln_2", "mlp.c_fc")
        check_centred(rows, name="questions")
        return rows, biases

    def _read_layer_norm(self, layer: int, norm: str, reader: str) -> tuple[Tensor, Tensor]:
        part = f"h.{layer}."
        return fold_reader(
            self.raw(f"{part}{reader}.weight"), self.raw(f"{part}{reader}.bias"),
            self.raw(f"{part}{norm}.weight"), self.raw(f"{part}{norm}.bias"),
        )  # fmt: skip

    @property
    def questions(self) -> Float[Tensor, "layer neuron d_model"]:
        """What each neuron asks of the normalised residual x̂."""
        return self._folded[0]

    @property
    def question_biases(self) -> Float[Tensor, "layer neuron"]:
        """Each neuron's score where x̂ is zero."""
        return self._folded[1]

    @cached_property
    def answers(self) -> Float[Tensor, "layer neuron d_model"]:
        """What each neuron adds to the residual stream, per unit of activation."""
        return torch.stack(
            [self.raw(f"h.{layer}.mlp.c_proj.weight") for layer in range(self.config.layers)]
        )

    @cached_property
    def answer_biases(self) -> Float[Tensor, "layer d_model"]:
        """What each MLP layer adds whatever its neurons do."""
        return torch.stack(
            [self.raw(f"h.{layer}.mlp.c_proj.bias") for layer in range(self.config.layers)]
        )

    @cached_property
    def embedding(self) -> Float[Tensor, "vocab d_model"]:
        """The token embeddings."""
        return self.raw("wte.weight")

    @cached_property
    def position_embedding(self) -> Float[Tensor, "position d_model"]:
        """The position embeddings."""
        return self.raw("wpe.weight")

    @cached_property
    def head(self) -> Float[Tensor, "vocab d_model"]:
        """The unembedding as it is on disk, W_U, before folding."""
        return self.embedding if self.config.is_tied else self.raw("lm_head.weight")

    @cached_property
    def final_gain(self) -> Float[Tensor, " d_model"]:
        """The final LayerNorm's gain, γ_f."""
        return self.raw("ln_f.weight")

    @cached_property
    def final_shift(self) -> Float[Tensor, " d_model"]:
        """The final LayerNorm's shift, β_f."""
        return self.raw("ln_f.bias")

    @cached_property
    def _folded_head(self) -> tuple[Tensor, Tensor]:
        columns = rearrange(self.head, "vocab d_model -> d_model vocab")
        rows, bias = fold_reader(columns, None, self.final_gain, self.final_shift)
        check_centred(rows, name="unembedding")
        return rows, bias

    @property
    def unembedding(self) -> Float[Tensor, "vocab d_model"]:
        """The direction that each token's logit reads, u_t: folded, centred over d_model."""
        return self._folded_head[0]

    @property
    def unembedding_bias(self) -> Float[Tensor, " vocab"]:
        """Each token's logit where the final x̂ is zero, d_t."""
        return self._folded_head[1]

    @cached_property
    def mean_unembedding(self) -> Float[Tensor, " d_model"]:
        """The mean of u_t over the vocabulary: what moves all logits alike."""
        return reduce(self.unembedding, "vocab d_model -> d_model", "mean")

    @cached_property
    def attention(self) -> tuple[Attention, ...]:
        """Every layer's attention, LayerNorm folded in."""
        return tuple(self._fold_attention(layer) for layer in range(self.config.layers))

    def _fold_attention(self, layer: int) -> Attention:
        c = self.config
        rows, biases = self._read_layer_norm(layer, "ln_1", "attn.c_attn")
        split = rearrange(
            rows, "(kind head d_head) d_model -> kind head d_head d_model", kind=3, head=c.heads
        )
        bias = rearrange(biases, "(kind head d_head) -> kind head d_head", kind=3, head=c.heads)
        out = rearrange(
            self.raw(f"h.{layer}.attn.c_proj.weight"),
            "(head d_head) d_model -> head d_head d_model",
            head=c.heads,
        )
        scale = c.d_head**-0.5 if c.is_attention_scaled else 1.0
        scale /= layer + 1 if c.is_attention_scaled_by_layer else 1
        return Attention(
            query=split[0], key=split[1], value=split[2],
            query_bias=bias[0], key_bias=bias[1], value_bias=bias[2],
            out=out, out_bias=self.raw(f"h.{layer}.attn.c_proj.bias"), scale=scale,
        )  # fmt: skip


def choose_device(name: str) -> torch.device:
    """Turn `auto`, `cpu`, `cuda` or `mps` into a device this machine has."""
    here = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if name == "auto":
        name = next(kind for kind in ("cuda", "mps", "cpu") if here[kind])
    if not here.get(name, False):
        present = ", ".join(kind for kind, is_here in here.items() if is_here)
        raise ModelNotLoaded(f'device "{name}" is not on this machine.', remedy=f"auto, {present}")
    return torch.device(name)

"""A 1-layer Transformer encoder that says whether a sentence praises, with a choice of FFN.

    x = embed(tokens) + positions;  x = norm(x + attention(x));  x = norm(x + ffn(x))
    logits = head(mean of x over the sentence's tokens)

Two encoders of one seed start from the same weights wherever they have the same shapes: the FFN is
drawn last, and its gate last of all. There is no dropout: only the FFN differs.

`swiglu` has the others' width and half as many parameters again in its FFN; `swiglu_equal` is
narrowed to the others' parameter count.
"""

from dataclasses import dataclass

import torch
from einops import rearrange, reduce
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from analyses.lab.activations import find_curve, is_gated
from ffnprobe.errors import OptionRefused

VARIANTS = {
    "relu": "relu",
    "gelu": "gelu",
    "swish": "swish",
    "swiglu": "swiglu",
    "swiglu_equal": "swiglu",
}


@dataclass(frozen=True)
class EncoderSettings:
    """Measurements of the encoder and of its training."""

    width: int = 64
    neurons: int = 128
    heads: int = 4
    tokens: int = 32
    rate: float = 1e-4
    batch: int = 16
    epochs: int = 10


class FeedForward(nn.Module):
    """Linear, activation, linear; a gated one has a second linear in parallel."""

    def __init__(self, width: int, neurons: int, activation: str) -> None:
        super().__init__()
        self.activation = activation
        self.curve = find_curve(activation)
        self.up = nn.Linear(width, neurons)
        self.down = nn.Linear(neurons, width)
        self.gate = nn.Linear(width, neurons) if is_gated(activation) else None

    def open(
        self, x: Float[Tensor, "... width"]
    ) -> tuple[Float[Tensor, "... neuron"], Float[Tensor, "... neuron"]]:
        """Return what enters the nonlinearity, and the activations that leave the layer."""
        if self.gate is None:
            scores = self.up(x)
            return scores, self.curve(scores)
        gates = self.gate(x)
        return gates, self.curve(gates) * self.up(x)

    def forward(self, x: Float[Tensor, "... width"]) -> Float[Tensor, "... width"]:
        return self.down(self.open(x)[1])  # type: ignore[no-any-return]


class Encoder(nn.Module):
    """The classifier."""

    def __init__(
        self, settings: EncoderSettings, *, vocab: int, pad: int, variant: str, seed: int
    ) -> None:
        super().__init__()
        width = settings.width
        self.pad = pad
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.embed = nn.Embedding(vocab, width)
            self.positions = nn.Embedding(settings.tokens, width)
            self.attention = nn.MultiheadAttention(width, settings.heads, batch_first=True)
            self.attention_norm = nn.LayerNorm(width)
            self.ffn_norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, 2)
            self.ffn = FeedForward(width, count_neurons(settings, variant), VARIANTS[variant])

    def words(self, ids: Int[Tensor, "batch pos"]) -> Bool[Tensor, "batch pos"]:
        """Say which positions hold a word and not padding; a sentence of nothing keeps its first."""
        is_word = ids != self.pad
        return is_word | (torch.arange(ids.shape[1]) == 0)

    def before_ffn(self, ids: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos width"]:
        """Return what the FFN reads."""
        x = self.embed(ids) + self.positions.weight[: ids.shape[1]]
        mixed, _ = self.attention(x, x, x, key_padding_mask=~self.words(ids), need_weights=False)
        return self.attention_norm(x + mixed)  # type: ignore[no-any-return]

    def forward(self, ids: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch label"]:
        """Return the logits of blame and praise."""
        x = self.before_ffn(ids)
        x = self.ffn_norm(x + self.ffn(x))
        weights = rearrange(self.words(ids).to(x.dtype), "batch pos -> batch pos 1")
        summed = reduce(x * weights, "batch pos width -> batch width", "sum")
        return self.head(summed / weights.sum(dim=1))  # type: ignore[no-any-return]

    @torch.no_grad()
    def open(self, ids: Int[Tensor, "batch pos"]) -> tuple[Tensor, Tensor]:
        """Return the FFN's pre-activations and activations at every word, `[word neuron]`."""
        entering, leaving = self.ffn.open(self.before_ffn(ids))
        is_word = self.words(ids)
        return entering[is_word], leaving[is_word]


def count_neurons(settings: EncoderSettings, variant: str) -> int:
    """Return an FFN's width: as set, or for `swiglu_equal` what gives the plain parameter count."""
    if variant not in VARIANTS:
        raise OptionRefused(f'"{variant}" is no FFN here.', remedy=", ".join(VARIANTS))
    if variant != "swiglu_equal":
        return settings.neurons
    # Plain: (2·width + 1) a neuron; gated: (3·width + 2) a neuron; the output bias is in both.
    return round(settings.neurons * (2 * settings.width + 1) / (3 * settings.width + 2))

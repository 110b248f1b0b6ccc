"""Our own forward pass, from any layer on, for many variants of one prompt at once.

With x̂ the LayerNorm of the stream x without gain and bias, a layer takes every position through

    x ← x + Σ_head out · Σ_key softmax(q · k · scale) v + b_O
    x ← x + Σ_n gelu(q_n · x̂ + c_n) w_n + b_out

on the folded weights. A change at position p leaves earlier positions as they were, so a variant is
only its stream at positions p, p+1, …; keys and values before p are kept from the clean run. Where p
is the last position, a variant is a single vector and the work is matrix products alone.

Limits: exact in real arithmetic; in fp32 a logit differs from the model's own by about 1e-5. The
arithmetic is done in the trace's dtype: a trace in float64 is replayed in float64.

>>> import ffnprobe as fp
>>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
>>> replay = Replay(trace)
>>> final = replay.finish(replay.entering(2, start=3)[None], layer=2, start=3)
>>> bool((final[0] - trace.final[3:]).abs().max() < 1e-3)
True
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from einops import einsum, rearrange
from jaxtyping import Bool, Float
from torch import Tensor

from ffnprobe.models.model import Attention, Model
from ffnprobe.tracing.account import normalise
from ffnprobe.tracing.trace import Trace

Stream = Float[Tensor, "variant pos d_model"]
# Given a layer and the activations of its neurons, return the activations to go on with.
Edit = Callable[[int, Float[Tensor, "variant pos neuron"]], Float[Tensor, "variant pos neuron"]]


@dataclass(frozen=True, eq=False)
class Replay:
    """A prompt's clean run, ready to be run again from any layer and position with changes."""

    trace: Trace

    @property
    def model(self) -> Model:
        return self.trace.model

    def held(self, tensor: Tensor) -> Tensor:
        """Bring a tensor to the model's device, in the trace's dtype."""
        return tensor.to(device=self.model.device, dtype=self.trace.final.dtype)

    def normalise(self, stream: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        """Return x̂, the stream's LayerNorm without gain and shift."""
        return normalise(stream, self.model.config.eps)

    def entering(self, layer: int, *, start: int) -> Float[Tensor, "pos d_model"]:
        """Return the clean stream that enters a layer (or, past the last, the final LayerNorm)."""
        is_past = layer == self.model.config.layers
        stream = self.trace.final if is_past else self.trace.before_attention[layer]
        return self.held(stream[start:])

    @cached_property
    def _clean(self) -> tuple[tuple[Tensor, Tensor], ...]:
        """Every layer's keys and values on the clean prompt, `[head pos d_head]`."""
        layers = range(self.model.config.layers)
        found = [self._keys_values(self.entering(n, start=0)[None], n) for n in layers]
        first_of_one = "1 pos head d_head -> head pos d_head"
        return tuple((rearrange(k, first_of_one), rearrange(v, first_of_one)) for k, v in found)

    def _keys_values(self, stream: Stream, layer: int) -> tuple[Tensor, Tensor]:
        a, seen = self.model.attention[layer], self.normalise(stream)
        return self._read(seen, a.key, a.key_bias), self._read(seen, a.value, a.value_bias)

    def _read(self, seen: Stream, weight: Tensor, bias: Tensor) -> Tensor:
        pattern = "variant pos d_model, head d_head d_model -> variant pos head d_head"
        return einsum(seen, self.held(weight), pattern) + self.held(bias)

    def finish(
        self, stream: Stream, *, layer: int, start: int, edit: Edit | None = None
    ) -> Float[Tensor, "variant pos d_model"]:
        """Take streams that enter `layer` at position `start` through to the final LayerNorm."""
        for number in range(layer, self.model.config.layers):
            stream = self.advance(stream, layer=number, start=start, edit=edit)
        return stream

    def advance(
        self, stream: Stream, *, layer: int, start: int, edit: Edit | None = None
    ) -> Float[Tensor, "variant pos d_model"]:
        """Take streams through one layer, neurons' activations edited on the way."""
        stream = stream + self._attend(stream, layer, start)
        model, held = self.model, self.held
        seen = self.normalise(stream)
        scores = torch.nn.functional.linear(
            seen, held(model.questions[layer]), held(model.question_biases[layer])
        )
        activations = model.activate(scores)
        if edit is not None:
            activations = edit(layer, activations)
        pattern = "variant pos neuron, neuron d_model -> variant pos d_model"
        written = einsum(activations, held(model.answers[layer]), pattern)
        return stream + written + held(model.answer_biases[layer])

    def _attend(self, stream: Stream, layer: int, start: int) -> Stream:
        """Return what attention writes: over kept keys before `start`, over the variant's own from it."""
        a: Attention = self.model.attention[layer]
        query = self._read(self.normalise(stream), a.query, a.query_bias)
        key, value = self._keys_values(stream, layer)
        kept_key, kept_value = (part[:, :start] for part in self._clean[layer])
        before = einsum(
            query, kept_key,
            "variant query head d_head, head key d_head -> variant head query key",
        )  # fmt: skip
        own = einsum(
            query, key,
            "variant query head d_head, variant key head d_head -> variant head query key",
        )  # fmt: skip
        own = own.masked_fill(_future(own.shape[-1], own.device), float("-inf"))
        looks = torch.softmax(torch.cat([before, own], dim=-1) * a.scale, dim=-1)
        mixed = einsum(
            looks[..., :start], kept_value,
            "variant head query key, head key d_head -> variant query head d_head",
        )  # fmt: skip
        mixed = mixed + einsum(
            looks[..., start:], value,
            "variant head query key, variant key head d_head -> variant query head d_head",
        )  # fmt: skip
        pattern = "variant pos head d_head, head d_head d_model -> variant pos d_model"
        return einsum(mixed, self.held(a.out), pattern) + self.held(a.out_bias)


def _future(length: int, device: torch.device) -> Bool[Tensor, "query key"]:
    """Mark the keys that come after each query."""
    return torch.ones(length, length, dtype=torch.bool, device=device).triu(diagonal=1)

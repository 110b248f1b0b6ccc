"""Our own forward pass, from any layer on, for many variants of one prompt at once.

With x̂ the norm of the stream x without gain and bias, a layer takes every position through

    x ← x + Σ_head out · Σ_key softmax(q · k · scale) v + b_O
    x ← x + Σ_n gelu(q_n · x̂ + c_n) w_n + b_out

on the folded weights, with what the model's family adds to that (gates, turned positions, windows,
norms of heads and of what is written, attention and MLP side by side). A change at position p leaves earlier positions as they were, so a variant is
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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from einops import einsum, rearrange
from jaxtyping import Bool, Float
from torch import Tensor

from ffnprobe.models.arithmetic import (
    add_up,
    finish_write,
    normalise,
    open_up,
    rotate,
    score_questions,
    write,
    write_heads,
)
from ffnprobe.models.attention import Attention
from ffnprobe.models.bridge import rotations
from ffnprobe.models.model import Model
from ffnprobe.tracing.trace import Trace

Stream = Float[Tensor, "variant pos d_model"]
# Given a layer and the activations of its neurons, return the activations to continue with.
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
        """Return x̂, the stream through a norm without gain and shift."""
        return normalise(self.model, stream)

    def entering(self, layer: int, *, start: int) -> Float[Tensor, "pos d_model"]:
        """Return the clean stream that enters a layer (or, past the last, the final LayerNorm)."""
        is_past = layer == self.model.config.layers
        stream = self.trace.final if is_past else self.trace.before_attention[layer]
        return self.held(stream[start:])

    def shifted(
        self, layer: int, positions: Sequence[int], shifts: Float[Tensor, "*variant pos d_model"]
    ) -> Float[Tensor, "*variant pos d_model"]:
        """Return the clean stream that leaves a layer, with what its answers add up to shifted."""
        chosen = list(positions)
        after = self.entering(layer + 1, start=0)[chosen]
        if not self.model.config.has_post_norms:
            return after + shifts
        total = add_up(self.model, layer, self.held(self.trace.activations[layer, chosen]))
        written = finish_write(self.model, layer, total + shifts)
        return self.held(self.trace.before_mlp[layer, chosen]) + written

    @cached_property
    def _clean(self) -> tuple[tuple[Tensor, Tensor], ...]:
        """Every layer's keys and values on the clean prompt, `[head pos d_head]`."""
        layers = range(self.model.config.layers)
        found = [self._keys_values(self.entering(n, start=0)[None], n, 0) for n in layers]
        first_of_one = "1 pos head d_head -> head pos d_head"
        return tuple((rearrange(k, first_of_one), rearrange(v, first_of_one)) for k, v in found)

    @cached_property
    def _turns(self) -> tuple[tuple[Tensor, Tensor] | None, ...]:
        """Every layer's cosines and sines of the positions, where positions are told by turning."""
        layers = range(self.model.config.layers)
        return tuple(rotations(self.model, layer, len(self.trace)) for layer in layers)

    def _turn(self, vectors: Tensor, layer: int, start: int) -> Tensor:
        """Turn queries or keys by their positions, from `start` on."""
        turns = self._turns[layer]
        if turns is None:
            return vectors
        end = start + vectors.shape[1]
        return rotate(vectors, turns[0][start:end], turns[1][start:end])

    def _keys_values(self, stream: Stream, layer: int, start: int) -> tuple[Tensor, Tensor]:
        a, seen = self.model.attention[layer], self.normalise(stream)
        keys = self._read(seen, a.key, a.key_bias, a.key_gain)
        values = self._read(seen, a.value, a.value_bias)
        each = len(a.query) // len(a.key)
        return (
            self._turn(keys, layer, start).repeat_interleave(each, dim=2),
            values.repeat_interleave(each, dim=2),
        )

    def _read(
        self, seen: Stream, weight: Tensor, bias: Tensor, gain: Tensor | None = None
    ) -> Tensor:
        pattern = "variant pos d_model, head d_head d_model -> variant pos head d_head"
        read = einsum(seen, self.held(weight), pattern) + self.held(bias)
        return read if gain is None else self.normalise(read) * self.held(gain)

    def finish(
        self, stream: Stream, *, layer: int, start: int, edit: Edit | None = None
    ) -> Float[Tensor, "variant pos d_model"]:
        """Take streams that enter `layer` at position `start` through to the final norm."""
        for number in range(layer, self.model.config.layers):
            stream = self.advance(stream, layer=number, start=start, edit=edit)
        return stream

    def advance(
        self, stream: Stream, *, layer: int, start: int, edit: Edit | None = None
    ) -> Float[Tensor, "variant pos d_model"]:
        """Take streams through one layer, neurons' activations edited on the way."""
        model = self.model
        after = stream + self._attend(stream, layer, start)
        read = stream if model.config.is_parallel else after
        activations = open_up(model, *score_questions(model, layer, self.normalise(read)))
        if edit is not None:
            activations = edit(layer, activations)
        return after + write(model, layer, activations)

    def _attend(self, stream: Stream, layer: int, start: int) -> Stream:
        """Return what attention writes: over kept keys before `start`, over the variant's own from it."""
        a: Attention = self.model.attention[layer]
        query = self._read(self.normalise(stream), a.query, a.query_bias, a.query_gain)
        query = self._turn(query, layer, start)
        key, value = self._keys_values(stream, layer, start)
        kept_key, kept_value = (part[:, :start] for part in self._clean[layer])
        before = einsum(
            query, kept_key,
            "variant query head d_head, head key d_head -> variant head query key",
        )  # fmt: skip
        own = einsum(
            query, key,
            "variant query head d_head, variant key head d_head -> variant head query key",
        )  # fmt: skip
        scores = torch.cat([before, own], dim=-1) * a.scale
        if a.cap is not None:
            scores = torch.tanh(scores / a.cap) * a.cap
        unseen = _unseen(start, own.shape[-1], a.window, own.device)
        looks = torch.softmax(scores.masked_fill(unseen, float("-inf")), dim=-1)
        mixed = einsum(
            looks[..., :start], kept_value,
            "variant head query key, head key d_head -> variant query head d_head",
        )  # fmt: skip
        mixed = mixed + einsum(
            looks[..., start:], value,
            "variant head query key, variant key head d_head -> variant query head d_head",
        )  # fmt: skip
        return write_heads(self.model, layer, mixed)


def _unseen(
    start: int, length: int, window: int | None, device: torch.device
) -> Bool[Tensor, "query key"]:
    """Mark the keys that each query from `start` on does not see: ahead of it, or past the window."""
    queries = torch.arange(start, start + length, device=device)[:, None]
    back = queries - torch.arange(start + length, device=device)
    return (back < 0) if window is None else (back < 0) | (back >= window)

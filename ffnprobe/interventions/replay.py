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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor

from ffnprobe.models.arithmetic import (
    add_up,
    finish_write,
    mask_unseen,
    normalise,
    open_up,
    rotate,
    score_questions,
    write,
    write_heads,
)
from ffnprobe.models.attention import Attention
from ffnprobe.models.model import Model
from ffnprobe.models.passes import rotations
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

    def moved(
        self, layer: int, position: int, shifts: Float[Tensor, "variant d_model"]
    ) -> Float[Tensor, "variant d_model"]:
        """Return how far shifts of what a layer's answers add up to move the stream at a position."""
        if not self.model.config.has_post_norms:
            return shifts
        total = add_up(self.model, layer, self.held(self.trace.activations[layer, [position]]))
        written = finish_write(self.model, layer, torch.cat([total, total + shifts]))
        return written[1:] - written[:1]

    def replaced(
        self, layer: int, given: Float[Tensor, "pos neuron"]
    ) -> Float[Tensor, "pos d_model"]:
        """Return how far other activations of all a layer's neurons move the stream, from position 0 on."""
        own, given = self.trace.activations[layer, : len(given)], self.held(given)
        if self.model.config.has_post_norms:
            # Not by a shift: what is left of a sum that cancels would be blown up by the norm.
            return write(self.model, layer, given) - write(self.model, layer, self.held(own))
        rows = self.held(self.model.rows[layer])
        return einsum(given - self.held(own), rows, "pos neuron, neuron d_model -> pos d_model")

    @cached_property
    def _clean(self) -> tuple[tuple[Tensor, Tensor], ...]:
        """Every layer's keys and values on the clean prompt, `[shared pos d_head]`."""
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
        return self._turn(keys, layer, start), values

    def _read(
        self, seen: Tensor, weight: Tensor, bias: Tensor, gain: Tensor | None = None
    ) -> Tensor:
        pattern = "... d_model, head d_head d_model -> ... head d_head"
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
        return self.advance_all([stream], [start], layer=layer, edits=edit and [edit])[0]

    def advance_all(
        self,
        streams: Sequence[Stream],
        starts: Sequence[int],
        *,
        layer: int,
        edits: Sequence[Edit] | None = None,
        first: int = 0,
        behind: Mapping[int, tuple[int, Sequence[int]]] | None = None,
    ) -> list[Stream]:
        """Take streams that begin at different positions through one layer, their products in common.

        Positions before `first` are dropped once heads have looked at them: for the last layer, of
        which nothing else is read. There is an edit for each of the streams, or none. A stream that is
        `behind` rows of another one, which begins earlier, sees their keys and values before its own.
        """
        model, a = self.model, self.model.attention[layer]
        rows = torch.cat([rearrange(one, "variant pos d_model -> (variant pos) d_model") for one in streams])  # fmt: skip
        seen = self.normalise(rows)
        keys = self._split(self._read(seen, a.key, a.key_bias, a.key_gain), streams)
        values = self._split(self._read(seen, a.value, a.value_bias), streams)
        if first:
            kept = [
                one[:, max(0, first - start) :] for one, start in zip(streams, starts, strict=True)
            ]
            streams = kept
            rows = torch.cat([rearrange(one, "variant pos d_model -> (variant pos) d_model") for one in kept])  # fmt: skip
            seen = self.normalise(rows)
        queries = self._split(self._read(seen, a.query, a.query_bias, a.query_gain), streams)
        froms = list(starts)
        for number, (other, chosen) in (behind or {}).items():
            ahead, froms[number] = starts[number] - starts[other], starts[other]
            for each in (keys, values):
                each[number] = torch.cat([each[other][list(chosen), :ahead], each[number]], dim=1)
        mixes = [
            self._mix(query, key, value, layer, start)
            for query, key, value, start in zip(queries, keys, values, froms, strict=True)
        ]
        joined = torch.cat([rearrange(one, "variant pos head d_head -> (variant pos) head d_head") for one in mixes])  # fmt: skip
        after = rows + write_heads(model, layer, joined)
        read = seen if model.config.is_parallel else self.normalise(after)
        activations = open_up(model, *score_questions(model, layer, read))
        if edits is not None:
            own = zip(edits, self._split(activations, streams), strict=True)
            edited = [edit(layer, each) for edit, each in own]
            activations = torch.cat([rearrange(each, "variant pos neuron -> (variant pos) neuron") for each in edited])  # fmt: skip
        return self._split(after + write(model, layer, activations), streams)

    @staticmethod
    def _split(rows: Float[Tensor, "row ..."], streams: Sequence[Stream]) -> list[Tensor]:
        """Give rows back to the streams they are of, `[variant pos ...]`."""
        parts = torch.split(rows, [len(one) * one.shape[1] for one in streams])
        return [
            part.reshape(*one.shape[:2], *part.shape[1:])
            for part, one in zip(parts, streams, strict=True)
        ]

    def _mix(self, query: Tensor, key: Tensor, value: Tensor, layer: int, start: int) -> Tensor:
        """Return what heads mix: over kept keys before `start`, over the variant's own from it.

        Queries may begin later than keys do.
        """
        a: Attention = self.model.attention[layer]
        late = key.shape[1] - query.shape[1]
        query, key = self._turn(query, layer, start + late), self._turn(key, layer, start)
        # Heads that share a key share a product.
        pattern = "variant query (shared each) d_head -> variant shared each query d_head"
        query = rearrange(query, pattern, shared=len(a.key))
        kept_key, kept_value = (part[:, :start] for part in self._clean[layer])
        before = einsum(
            query, kept_key,
            "variant shared each query d_head, shared key d_head -> variant shared each query key",
        )  # fmt: skip
        own = einsum(
            query, key,
            "variant shared each query d_head, variant key shared d_head -> variant shared each query key",
        )  # fmt: skip
        scores = torch.cat([before, own], dim=-1) * a.scale
        if a.cap is not None:
            scores = torch.tanh(scores / a.cap) * a.cap
        unseen = mask_unseen(start + late, query.shape[-2], a.window, own.device)
        looks = torch.softmax(scores.masked_fill(unseen, float("-inf")), dim=-1)
        mixed = einsum(
            looks[..., :start], kept_value,
            "variant shared each query key, shared key d_head -> variant shared each query d_head",
        )  # fmt: skip
        mixed = mixed + einsum(
            looks[..., start:], value,
            "variant shared each query key, variant key shared d_head -> variant shared each query d_head",
        )  # fmt: skip
        return rearrange(
            mixed, "variant shared each query d_head -> variant query (shared each) d_head"
        )

"""A prompt run again with changes: from any layer and position on, for many variants at once.

A change at position p leaves earlier positions as they were, so a variant is only its stream at positions
p, p+1, …; keys and values before p are kept from the clean run, one copy for all variants. Where p is the
last position, a variant is a single vector and the work is matrix products alone. A layer is computed by
`ffnprobe.models.step`, on the weights as they are on disk.

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
from functools import cached_property, partial

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from ffnprobe.models.model import Model
from ffnprobe.models.step import Past, Stream, add_up, finish_write, keep_past, step, write
from ffnprobe.tracing.trace import Trace

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

    def entering(self, layer: int, *, start: int) -> Float[Tensor, "pos d_model"]:
        """Return the clean stream that enters a layer (or, past the last, the final LayerNorm)."""
        is_past = layer == self.model.config.layers
        stream = self.trace.final if is_past else self.trace.before_attention[layer]
        return self.held(stream[start:])

    def moved(
        self, layer: int, positions: Sequence[int], shifts: Float[Tensor, "variant pos d_model"]
    ) -> Float[Tensor, "variant pos d_model"]:
        """Return how far shifts of what a layer's answers add up to move the stream at positions."""
        if not self.model.config.has_post_norms:
            return shifts
        own = self.held(self.trace.activations[layer, list(positions)])
        total = add_up(self.model, layer, own)[None]
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
    def _at(self) -> Tensor:
        return torch.arange(len(self.trace), device=self.model.device)[None]

    @cached_property
    def _clean(self) -> tuple[Past, ...]:
        """Every layer's keys and values on the clean prompt, one copy."""
        every = (self.entering(layer, start=0)[None] for layer in range(self.model.config.layers))
        kept = (keep_past(self.model, layer, one, self._at) for layer, one in enumerate(every))
        return tuple(Past(each.keys[0], each.values[0], each.at) for each in kept)

    def finish(
        self, stream: Stream, *, layer: int, start: int, edit: Edit | None = None
    ) -> Float[Tensor, "variant pos d_model"]:
        """Take streams that enter `layer` at position `start` through to the final norm."""
        for number in range(layer, self.model.config.layers):
            edits = None if edit is None else [edit]
            (stream,) = advance([self], [stream], [start], layer=number, edits=edits)
        return stream

    def past(self, layer: int, start: int) -> Past | None:
        """Return a layer's keys and values before a position."""
        if not start:
            return None
        clean = self._clean[layer]
        return Past(clean.keys[:, :start], clean.values[:, :start], clean.at[:, :start])


def advance(
    replays: Sequence[Replay],
    streams: Sequence[Stream],
    starts: Sequence[int],
    *,
    layer: int,
    edits: Sequence[Edit] | None = None,
    firsts: Sequence[int] | None = None,
) -> list[Stream]:
    """Take streams, each of a prompt and from a position on, through one layer, their products in common.

    Positions before `firsts` are dropped once heads have looked at them: for the last layer, of which
    nothing else is read. There is an edit for each of the streams, or none.
    """
    each = list(zip(replays, starts, strict=True))
    return step(
        replays[0].model, layer, streams, [replay._at[:, start:] for replay, start in each],
        past=[replay.past(layer, start) for replay, start in each],
        taps=None if edits is None else [{"activations": partial(e, layer)} for e in edits],
        drop=None if firsts is None else [max(0, f - start) for f, start in zip(firsts, starts, strict=True)],
    )  # fmt: skip

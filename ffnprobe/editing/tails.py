"""The rest of several prompts, each from a position on, from a layer on, as one batch.

A change at a subject's last token leaves earlier positions as they were: their keys and values are
kept from the clean run, and only the tokens from the subject's last on are run again. Tails of
different lengths are padded behind, where causal attention never looks. Gradients go through, so that
a layer's output can be optimised at the cost of a few tokens' pass.

Limits: as `ffnprobe.interventions.replay`, which does this for variants of one prompt; in fp32.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from einops import einsum, rearrange
from jaxtyping import Bool, Float
from torch import Tensor

from ffnprobe.editing.requests import Context
from ffnprobe.models.arithmetic import (
    cap,
    finish_write,
    normalise,
    open_up,
    rotate,
    score_questions,
    write,
    write_heads,
)
from ffnprobe.models.model import Model
from ffnprobe.models.own_pass import Tap
from ffnprobe.models.passes import rotations, watch

Rows = Float[Tensor, "prompt pos d_model"]


@dataclass(frozen=True, eq=False)
class Tails:
    """Prompts from their subjects' last tokens on, ready to run on from a layer's MLP."""

    model: Model
    layer: int
    contexts: tuple[Context, ...]
    keys: Float[Tensor, "prompt neuron"]  # activations at the subject's last token
    totals: Float[Tensor, "prompt d_model"]  # what they add up to there, with b_out
    before: Float[Tensor, "prompt d_model"]  # the stream there before the MLP adds to it
    after: Rows  # the stream that leaves the layer, from there on
    kept: tuple[tuple[Tensor, Tensor], ...]  # keys and values of each later layer, before there

    def log_probabilities(
        self, shifts: Float[Tensor, "prompt d_model"]
    ) -> Float[Tensor, "read vocab"]:
        """Shift what the layer's answers add up to, run on, and read every context's `reads`."""
        rows = self.after.clone()
        if self.model.config.has_post_norms:
            rows[:, 0] = self.before + finish_write(self.model, self.layer, self.totals + shifts)
        else:
            rows[:, 0] = self.after[:, 0] + shifts
        for number, kept in enumerate(self.kept, start=self.layer + 1):
            rows = self._advance(rows, number, kept)
        owners, offsets = self.read_offsets()
        seen = normalise(self.model, rows[owners, offsets])
        logits = torch.nn.functional.linear(
            seen, self.model.unembedding, self.model.unembedding_bias
        )
        return torch.log_softmax(cap(self.model, logits), dim=-1)

    def read_offsets(self) -> tuple[list[int], list[int]]:
        """List the rows that are read: the context, and the offset in its tail."""
        listed = [
            (order, read - one.start)
            for order, one in enumerate(self.contexts)
            for read in one.reads
        ]
        return [order for order, _ in listed], [offset for _, offset in listed]

    def _advance(self, rows: Rows, layer: int, kept: tuple[Tensor, Tensor]) -> Rows:
        """Take all tails through one layer."""
        model, a = self.model, self.model.attention[layer]
        seen = normalise(model, rows)
        wide = rows.shape[1]
        query = self._turn(_read(model, seen, a.query, a.query_bias, a.query_gain), layer)
        key = self._turn(_read(model, seen, a.key, a.key_bias, a.key_gain), layer)
        value = _read(model, seen, a.value, a.value_bias)
        each = len(a.query) // len(a.key)
        keys = torch.cat([kept[0], key], dim=1).repeat_interleave(each, dim=2)
        values = torch.cat([kept[1], value], dim=1).repeat_interleave(each, dim=2)
        pattern = "prompt query head d_head, prompt key head d_head -> prompt head query key"
        scores = einsum(query, keys, pattern) * a.scale
        if a.cap is not None:
            scores = torch.tanh(scores / a.cap) * a.cap
        unseen = self._unseen(kept[0].shape[1], wide, a.window)
        looks = torch.softmax(scores.masked_fill(unseen[:, None], float("-inf")), dim=-1)
        pattern = "prompt head query key, prompt key head d_head -> prompt query head d_head"
        after = rows + write_heads(model, layer, einsum(looks, values, pattern))
        read = seen if model.config.is_parallel else normalise(model, after)
        return after + write(model, layer, open_up(model, *score_questions(model, layer, read)))

    def _starts(self) -> Tensor:
        return torch.tensor([one.start for one in self.contexts], device=self.model.device)

    def _turn(self, vectors: Float[Tensor, "prompt pos head d_head"], layer: int) -> Tensor:
        """Turn queries or keys by their positions in their own prompts."""
        longest = int(self._starts().max()) + vectors.shape[1]
        turns = rotations(self.model, layer, longest)
        if turns is None:
            return vectors
        wide = vectors.shape[1]
        positions = self._starts()[:, None] + torch.arange(wide, device=vectors.device)
        flat = rearrange(vectors, "prompt pos head d_head -> (prompt pos) head d_head")
        turned = rotate(flat, *(part[positions.flatten()] for part in turns))
        return rearrange(turned, "(prompt pos) head d_head -> prompt pos head d_head", pos=wide)

    def _unseen(
        self, before: int, wide: int, window: int | None
    ) -> Bool[Tensor, "prompt query key"]:
        """Mark the keys a query does not see: padding, tokens ahead, and those past the window."""
        starts = self._starts()[:, None]
        own = starts + torch.arange(wide, device=starts.device)
        kept = torch.arange(before, device=starts.device).expand(len(starts), -1)
        # What is kept past a prompt's own start is padding: far ahead of every query.
        kept = kept.masked_fill(kept >= starts, self.model.config.positions * 2)
        keys = torch.cat([kept, own], dim=1)
        back = own[:, :, None] - keys[:, None]
        return (back < 0) if window is None else (back < 0) | (back >= window)


@torch.no_grad()
def open_tails(model: Model, layer: int, contexts: Sequence[Context]) -> Tails:
    """Run the prompts once and keep what their tails need."""
    longest = max(len(one.ids) for one in contexts)
    wide = max(len(one.ids) - one.start for one in contexts)
    first = max(one.start for one in contexts)
    padded = torch.tensor([[*one.ids, *[0] * (longest - len(one.ids))] for one in contexts])
    rows = torch.arange(len(contexts))
    starts = torch.tensor([one.start for one in contexts])
    found: dict[str, Tensor] = {}
    kept: list[tuple[Tensor, Tensor]] = []

    def at_start(name: str) -> Tap:
        def tap(tensor: Tensor) -> None:
            found[name] = tensor[rows, starts].clone()

        return tap

    def keep_stream(number: int) -> Tap:
        def tap(stream: Tensor) -> None:
            if number == layer + 1:
                positions = (starts[:, None] + torch.arange(wide)).clamp(max=longest - 1)
                found["after"] = stream[rows[:, None], positions].clone()
            if number < model.config.layers:
                kept.append(_keys_values(model, stream[:, :first], number))

        return tap

    taps: dict[tuple[str, int], Tap] = {
        ("activations", layer): at_start("keys"),
        ("before_mlp", layer): at_start("before"),
    }
    last = model.config.layers
    taps |= {("before_attention", number): keep_stream(number) for number in range(layer + 1, last)}
    if layer + 1 == last:
        taps["final", 0] = keep_stream(last)
    watch(model, padded, taps)
    weight, bias = model.linear(layer, model.layout.down)
    totals = found["keys"] @ weight
    return Tails(
        model, layer, tuple(contexts), found["keys"], totals if bias is None else totals + bias,
        found["before"], found["after"], tuple(kept),
    )  # fmt: skip


def _keys_values(model: Model, stream: Rows, layer: int) -> tuple[Tensor, Tensor]:
    """Return a layer's keys, turned, and values at the first positions of every prompt."""
    a, seen = model.attention[layer], normalise(model, stream)
    keys = _read(model, seen, a.key, a.key_bias, a.key_gain)
    turns = rotations(model, layer, stream.shape[1])
    if turns is not None:
        keys = rotate(keys, *turns)
    return keys, _read(model, seen, a.value, a.value_bias)


def _read(
    model: Model, seen: Rows, weight: Tensor, bias: Tensor, gain: Tensor | None = None
) -> Float[Tensor, "prompt pos head d_head"]:
    """Return queries, keys or values."""
    read = einsum(seen, weight, "... d_model, head d_head d_model -> ... head d_head") + bias
    return read if gain is None else normalise(model, read) * gain

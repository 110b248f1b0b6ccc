"""One step back through attention: what each head carried, and from what stands where it looked.

A head (l, h) writes at position q what it found at the positions j it looked at:

    Σ_j A_qj · O_h V_h x̂(j)          x̂(j) = the stream at j / s_l(j)

With the patterns A and the norms' scales s held as they were, this is linear in everything that layers
below l wrote at j. So if r(l, q) is the direction along which what layer l writes at q counts, what
stands at j counts through this head along

    c(l, h, j) = Σ_q A_qj · V_h O_h r(l, q) / s_l(j)

and what layer m writes at j counts through attention along r'(m, j) = Σ_{l > m} Σ_h c(l, h, j). A
second step is the first one again, with r' for r.

Readers are `[level pos d_model]`: level 0 reads the embeddings, level m + 1 what layer m wrote. A head's
value bias is the same wherever it looks, and is counted with b_O, as in `account`. Where attention
writes through a norm of its own, gain and scale are in c.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from einops import einsum, rearrange, reduce
from jaxtyping import Float
from torch import Tensor

from ffnprobe.errors import OptionRefused
from ffnprobe.models.step import measure_scale
from ffnprobe.tracing.trace import Trace

KINDS = ("embedding", "position_embedding", "neurons", "heads", "biases")
Readers = Float[Tensor, "level pos d_model"]


@dataclass(frozen=True, eq=False)
class Written:
    """What stands in the stream, by kind: the embeddings, then what each layer wrote."""

    embeddings: Float[Tensor, "kind pos d_model"]
    neurons: Float[Tensor, "layer pos d_model"]
    heads: Float[Tensor, "layer pos d_model"]
    biases: Float[Tensor, "layer pos d_model"]

    def streams(self) -> Iterator[Float[Tensor, "kind pos d_model"]]:
        """Return what each layer's attention reads, by kind, one layer after the other."""
        rest = torch.zeros_like(torch.stack([self.neurons[0], self.heads[0], self.biases[0]]))
        for layer in range(len(self.neurons)):
            yield torch.cat([self.embeddings, rest])
            rest = rest + torch.stack([self.neurons[layer], self.heads[layer], self.biases[layer]])


@dataclass(frozen=True, eq=False)
class Step:
    """What every head moved, along the readers it was given, shared among what it found.

    `shares` add up to `moved`; `readers` are those of what stands before the heads.
    """

    given: Readers
    moved: Float[Tensor, "layer head"]
    shares: Float[Tensor, "layer head pos kind"]
    readers: Readers


def gather_written(trace: Trace, end: int) -> Written:
    """Add up what was written at the positions before `end`, by kind and layer."""
    model = trace.model
    device, layers = model.device, model.config.layers
    tokens = model.embedding[list(trace.ids[:end])]
    embedded = model.position_embedding
    shape = (layers, end, model.config.d_model)
    neurons, heads, biases = (torch.zeros(shape, device=device) for _ in range(3))
    amounts = trace.amounts[:, :end]
    for layer, attention in enumerate(model.attention):
        bias = attention.for_heads(attention.value_bias)
        pattern = "... head d_head, head d_head d_model -> ... d_model"
        mixes = trace.mixes[layer, :end].to(device)
        gain = post_gain(trace, layer, slice(end))
        heads[layer] = einsum(mixes - bias, attention.out, pattern) * gain
        biases[layer] = (einsum(bias, attention.out, pattern) + attention.out_bias) * gain
        biases[layer] += model.answer_biases[layer]
        neurons[layer] = einsum(
            amounts[layer].to(device), model.answers[layer],
            "pos neuron, neuron d_model -> pos d_model",
        )  # fmt: skip
    return Written(
        torch.stack([tokens, torch.zeros_like(tokens) if embedded is None else embedded[:end]]),
        neurons, heads, biases,
    )  # fmt: skip


def read_end(trace: Trace, along: Float[Tensor, " d_model"], position: int) -> Readers:
    """Return the readers of a direction at one position: the same at every level, nothing elsewhere."""
    readers = torch.zeros(
        trace.model.config.layers + 1, position + 1, len(along), device=along.device
    )
    readers[:, position] = along
    return readers


def carry(trace: Trace, given: Readers, written: Written) -> Step:
    """Take readers one step back through every head."""
    c, end = trace.model.config, given.shape[1]
    moved = torch.zeros(c.layers, c.heads)
    shares = torch.zeros(c.layers, c.heads, end, len(KINDS))
    readers = torch.zeros_like(given)
    for layer, stream in enumerate(written.streams()):
        if not given[layer + 1].any():
            continue  # after each step one layer more has nobody above it left
        moved[layer] = reduce(move(trace, layer, given), "pos head -> head", "sum").cpu()
        carriers = carry_back(trace, layer, given)
        pattern = "head pos d_model, kind pos d_model -> head pos kind"
        shares[layer] = einsum(carriers, stream, pattern).cpu()
        readers[: layer + 1] += reduce(carriers, "head pos d_model -> pos d_model", "sum")
    return Step(given, moved, shares, readers)


def move(trace: Trace, layer: int, given: Readers) -> Float[Tensor, "pos head"]:
    """Return what each head of a layer moved to each position, along the readers given."""
    attention, end = trace.model.attention[layer], given.shape[1]
    mixes = trace.mixes[layer, :end].to(given.device)
    mixes = mixes - attention.for_heads(attention.value_bias)
    return einsum(
        mixes, _read_heads(trace, layer, given[layer + 1], slice(end)),
        "pos head d_head, pos head d_head -> pos head",
    )  # fmt: skip


def carry_back(trace: Trace, layer: int, given: Readers) -> Float[Tensor, "head pos d_model"]:
    """Return the direction c along which what stands at each position counts through each head."""
    # In the first step only one position is read: no product with the zeros elsewhere.
    start = int(given[layer + 1].any(dim=-1).int().argmax())
    sought = seek(trace, layer, given[layer + 1, start:], start=start)
    values = trace.model.attention[layer].for_heads(trace.model.attention[layer].value)
    return einsum(sought, values, "head pos d_head, head d_head d_model -> head pos d_model")


def seek(
    trace: Trace, layer: int, along: Float[Tensor, "... query d_model"], *, start: int = 0
) -> Float[Tensor, "... head pos d_head"]:
    """Take readers of what attention writes, from `start` on, to what its heads seek at each position.

    What stands at a position counts by its product with value · sought; the norm's scale is in it.
    """
    if trace.patterns is None:
        raise OptionRefused(
            "this trace was run without attention patterns.", remedy="run(..., patterns=True)"
        )
    end = start + along.shape[-2]
    looks = trace.patterns[layer, :, start:end, :end].to(along.device)
    sought = einsum(
        looks, _read_heads(trace, layer, along, slice(start, end)),
        "head query pos, ... query head d_head -> ... head pos d_head",
    )  # fmt: skip
    scales = measure_scale(trace.model, trace.before_attention[layer, :end].to(along.device))
    return sought / scales[:, None]


def push_neurons(trace: Trace, readers: Readers) -> Float[Tensor, "layer pos neuron"]:
    """Return how much each neuron's answer at each position counts along the readers."""
    model, end = trace.model, readers.shape[1]
    pattern = "pos d_model, neuron d_model -> pos neuron"
    amounts = trace.amounts[:, :end]
    found = torch.zeros_like(amounts)
    for layer in range(model.config.layers - 1):  # the last layer's are read by no head
        if not readers[layer + 1].any():
            continue
        along = einsum(readers[layer + 1], model.answers[layer], pattern)
        found[layer] = along.cpu() * amounts[layer]
    return found


def push_heads(trace: Trace, readers: Readers) -> Float[Tensor, "layer pos head"]:
    """Return how much what each head wrote at each position counts along the readers."""
    layers = range(trace.model.config.layers)
    return torch.stack([move(trace, layer, readers).cpu() for layer in layers])


def _read_heads(
    trace: Trace, layer: int, along: Float[Tensor, "... pos d_model"], positions: slice
) -> Float[Tensor, "... pos head d_head"]:
    """Take readers of what a layer's attention writes to what its heads mixed."""
    through = along * post_gain(trace, layer, positions)
    out = trace.model.attention[layer].out
    return einsum(through, out, "... pos d_model, head d_head d_model -> ... pos head d_head")


def post_gain(trace: Trace, layer: int, positions: slice) -> Float[Tensor, "pos #d_model"]:
    """Return what the norm that attention writes through multiplies by: 1 where there is none."""
    gain, scales = trace.model.attention[layer].post_gain, trace.attention_post_scales
    if gain is None or scales is None:
        return torch.ones(1, 1, device=trace.model.device)
    return gain / rearrange(scales[layer, positions], "pos -> pos 1").to(gain.device)

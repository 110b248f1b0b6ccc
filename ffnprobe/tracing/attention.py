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

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from einops import einsum, rearrange, reduce
from jaxtyping import Float
from torch import Tensor

from ffnprobe.errors import OptionRefused
from ffnprobe.models.step import measure_scale
from ffnprobe.names import NeuronId, Site
from ffnprobe.reading.neuron_tables import Values, list_neurons
from ffnprobe.reading.projection import check_top, gather, name_site, sort_sites, top_tokens
from ffnprobe.tracing.account import check_closed
from ffnprobe.tracing.attribution import Pushes
from ffnprobe.tracing.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

    from ffnprobe.tracing.paths import Paths


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


# MERGED: ffnprobe.tracing.path_tables
# Tables of paths: the parts that push hardest through attention, and which head carried them.


Source = Site  # where a path begins
_EMBEDDINGS = ("embedding", "position")  # the first two kinds


def table_top(paths: "Paths", top: int | None) -> "pd.DataFrame":
    """Table the `top` strongest of all neurons and embeddings, each at its position."""
    trace, embeddings = paths.trace, paths.owned[:, : len(_EMBEDDINGS)]
    values = torch.cat([*embeddings.unbind(dim=1), paths.neurons.ravel().double()])
    top = check_top(top, len(values), of="neurons and embeddings at positions")
    cells, first = top_tokens(values.abs()[None], top)[1][0].tolist(), embeddings.numel()
    sources = [name_site(cell - first, paths.neurons.shape) for cell in cells if cell >= first]
    acted = [float(trace.activations[n.layer, at, n.neuron]) for n, at in sources]
    neurons = zip(sources, acted, _carry_all(paths, sources), strict=True)
    rows = [next(neurons) if cell >= first else _read_embedding(paths, cell) for cell in cells]
    parts, activations, shares = zip(*rows, strict=True)
    columns = _name_strongest(shares)
    columns |= {"activation": list(activations), "push_through_attention": values[cells]}
    frame = list_neurons(trace.model, parts, columns, tokens=trace.tokens)
    return frame.astype({"layer": "Int64", "neuron": "Int64"})


def table_neurons(paths: "Paths", top: int | None) -> "pd.DataFrame":
    """Table the `top` strongest neurons, each at its position, with the tokens they stand for."""
    trace = paths.trace
    top = check_top(top, paths.neurons.numel(), of="neurons at positions")
    sources = sort_sites(paths.neurons.abs(), top)
    columns = _name_strongest(_carry_all(paths, sources))
    columns |= {"activation": trace.activations, "push_through_attention": paths.neurons}
    return list_neurons(trace.model, sources, columns, signs=trace.activations, tokens=trace.tokens)


def table_carriers(paths: "Paths", neuron: str | NeuronId, position: int) -> "pd.DataFrame":
    """Table every head above a neuron: how much it carried of its answer, step by step."""
    import pandas as pd

    name, index = paths.trace.model.find_neuron(neuron), paths.trace.at(position)
    heads = _carry_all(paths, [(name, index)])[0]
    rows = [
        (f"L{layer}H{head}", layer, head, step + 1, push)
        for step, by_layer in enumerate(heads.tolist())
        for layer, pushes in enumerate(by_layer)
        for head, push in enumerate(pushes)
        if layer > name.layer
    ]
    frame = pd.DataFrame(rows, columns=["part", "layer", "head", "step", "push"])
    return frame.sort_values("push", key=abs, ascending=False, kind="stable", ignore_index=True)


@torch.no_grad()
def carry_sources(
    trace: Trace, given: Readers, sources: Sequence[Source]
) -> Float[Tensor, "source layer head"]:
    """Return how much each head carried of each neuron's answer from its position, along readers."""
    model = trace.model
    answers = gather(model.answers, [name for name, _ in sources])
    positions = [position for _, position in sources]
    layers = torch.tensor([name.layer for name, _ in sources])
    amounts = torch.stack([trace.amounts[n.layer, j, n.neuron] for n, j in sources])
    found = torch.zeros(len(sources), model.config.layers, model.config.heads)
    for layer in range(model.config.layers):
        if not (layers < layer).any() or not given[layer + 1].any():
            continue
        carriers = carry_back(trace, layer, given)[:, positions]
        along = einsum(answers, carriers, "source d_model, head source d_model -> source head")
        found[:, layer] = along.cpu() * amounts[:, None] * (layers < layer)[:, None]
    return found


def _carry_all(
    paths: "Paths", sources: Sequence[Source]
) -> Float[Tensor, "source step layer head"]:
    if not sources:
        return torch.zeros(0, len(paths.steps), *paths.steps[0].moved.shape)
    return torch.stack(
        [carry_sources(paths.trace, step.given, sources) for step in paths.steps], dim=1
    )


def _read_embedding(paths: "Paths", cell: int) -> tuple[tuple[str, int], None, Tensor]:
    """Name an embedding at its position; it has no activation; and what each head carried of it."""
    kind, position = divmod(cell, len(paths.owned))
    shares = [step.shares[:, :, position, kind] for step in paths.steps]
    return (_EMBEDDINGS[kind], position), None, torch.stack(shares)


def _name_strongest(found: Iterable[Float[Tensor, "step layer head"]]) -> dict[str, Values]:
    """Name the heads that carried most in the direction of the sum, their steps, and how much."""
    rows = []
    for shares in found:
        toward = shares * (1.0 if shares.double().sum() >= 0 else -1.0)
        cell = int(rearrange(toward, "step layer head -> (step layer head)").argmax())
        step, rest = divmod(cell, shares[0].numel())
        layer, head = divmod(rest, shares.shape[-1])
        rows.append((f"L{layer}H{head}", step + 1, float(shares[step, layer, head])))
    columns = ("through", "step", "carried")
    return {name: list(each) for name, each in zip(columns, zip(*rows, strict=True), strict=True)}


# MERGED: ffnprobe.tracing.owners
# Who owns an answer's logit once attention's part is given back to what it carried, to the end.
#
#     R(L) = u_t / s_T at T        R(l) = R(l + 1) + Σ_h c(l, h)         c as in `carrying`
#
# R(l + 1) is the direction along which what layer l writes at a position counts: directly at T, and
# through every head above it, and the heads that read those, however many. So no head is left over:
#
#     logit = Σ embeddings · R(0) + Σ_l Σ_n a_n (w_n · R(l + 1)) + biases + constants
#
# Patterns and scales are held as they were. The account is closed against the model's logit, or it is an
# error. `paths` takes one step (or as many as asked) and shows what is left of heads; this takes all.
#
# >>> import ffnprobe as fp
# >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
# >>> owners = find_owners(fp.attribute(trace, " basketball"))
# >>> abs(owners.total - owners.pushes.logit) < 1e-3
# True


@dataclass(frozen=True, eq=False)
class Owners:
    """What every neuron, embedding and bias pushes at every position, directly and through heads.

    `through` is what neurons push through attention alone; at the last position a neuron also pushes
    directly, as `attribute` says.
    """

    pushes: Pushes
    readers: Readers
    through: Float[Tensor, "layer pos neuron"]
    embeddings: Float[Tensor, " pos"]
    biases: Float[Tensor, " pos"]

    @property
    def total(self) -> float:
        """What all owners and constants add up to: the logit."""
        direct = float(self.pushes.values.double().sum())
        carried = sum(float(t.double().sum()) for t in (self.through, self.embeddings, self.biases))
        return direct + carried + sum(self.pushes.account.constants.values())

    def name_heads(self, sources: Sequence[Source]) -> list[tuple[str, float]]:
        """Name the head that carried most of each neuron's push from its position, and how much."""
        if not sources:
            return []
        shares = carry_sources(self.pushes.trace, self.readers, sources)
        named = []
        for own in shares:
            toward = own * (1.0 if own.double().sum() >= 0 else -1.0)
            strongest = int(rearrange(toward, "layer head -> (layer head)").argmax())
            layer, head = divmod(strongest, own.shape[-1])
            carried = float(own[layer, head])
            named.append((f"L{layer}H{head}" if carried else "", carried))
        return named


def describe_elsewhere(pushes: Pushes) -> str:
    """Say how much of an answer's logit attention brought from the token that most of it is from.

    Nothing where that is little: less than a tenth of the logit.
    """
    owners, last = find_owners(pushes), pushes.position
    own = owners.through.double().sum(dim=(0, 2)) + owners.embeddings.double()
    if not last or float(own[:last].abs().max()) < 0.1 * abs(pushes.logit):
        return ""
    most = int(own[:last].abs().argmax())
    return (
        f"{float(own[most]):.1f} of {pushes.logit:.1f} logits come through attention from "
        f"{pushes.trace.tokens[most]}: paths, explain"
    )


@torch.no_grad()
def find_owners(pushes: Pushes) -> Owners:
    """Give every head's push back to what it carried, through as many heads as there are."""
    trace, end = pushes.trace, pushes.position
    model = trace.model
    readers = read_end(trace, pushes.direction / trace.final_scale[end], end)
    for layer in reversed(range(model.config.layers)):
        carriers = carry_back(trace, layer, readers)
        readers[layer] = readers[layer + 1] + reduce(
            carriers, "head pos d_model -> pos d_model", "sum"
        )
    written = gather_written(trace, end + 1)
    amounts = trace.amounts[:, : end + 1]
    through = torch.zeros_like(amounts)
    pattern = "pos d_model, neuron d_model -> pos neuron"
    for layer in range(model.config.layers):
        along = einsum(readers[layer + 1], model.answers[layer], pattern)
        through[layer] = along.cpu() * amounts[layer]
    through[:, end] -= pushes.values
    through[-1] = 0  # no head reads what the last layer writes
    every = "kind pos d_model, pos d_model -> pos"
    found = Owners(
        pushes=pushes,
        readers=readers,
        through=through,
        embeddings=einsum(written.embeddings, readers[0], every).cpu(),
        biases=einsum(
            written.biases, readers[1:], "layer pos d_model, layer pos d_model -> pos"
        ).cpu(),
    )
    named = (
        f"the logit of {model.vocab.show(pushes.answer)}, heads given back to what they carried,"
    )
    check_closed(found.total, pushes.logit, named=named)
    return found

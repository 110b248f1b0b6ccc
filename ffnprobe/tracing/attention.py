"""Through attention: what each head carried from where, one step back, and all steps to the end.

A head (l, h) writes at position q what it found at the positions j it looked at:

    Σ_j A_qj · O_h V_h x̂(j)          x̂(j) = the stream at j / s_l(j)

With the patterns A and the norms' scales s held as they were, this is linear in everything that layers
below l wrote at j. So if r(l, q) is the direction along which what layer l writes at q counts, what
stands at j counts through this head's OV along

    c(l, h, j) = Σ_q A_qj · V_h O_h r(l, q) / s_l(j)

and what layer m writes at j counts through attention along r'(m, j) = Σ_{l > m} Σ_h c(l, h, j). A
second step is the first one again, with r' for r. `paths` takes as many as asked, and shows what is left
of heads. `find_owners` takes all at once, so that no head is left over:

    R(L) = u_t / s_T at T        R(l) = R(l + 1) + Σ_h c(l, h)
    logit = Σ embeddings · R(0) + Σ_l Σ_n a_n (w_n · R(l + 1)) + biases + constants

R(l + 1) is the direction along which what layer l writes at a position counts: directly at T, and
through every head above it, and the heads that read those, however many. The account is closed against
the model's logit, or it is an error.

Readers are `[level pos d_model]`: level 0 reads the embeddings, level m + 1 what layer m wrote. A head's
value bias is the same wherever it looks, and is counted with b_O, as in `account`. Where attention
writes through a norm of its own, gain and scale are in c.

>>> import ffnprobe as fp
>>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
>>> owners = find_owners(fp.attribute(trace, " basketball"))
>>> abs(owners.total - owners.pushes.logit) < 1e-3
True
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from einops import einsum, rearrange, reduce
from jaxtyping import Float
from torch import Tensor

from ffnprobe.errors import OptionRefused
from ffnprobe.models.step import measure_scale
from ffnprobe.names import NeuronId, Site
from ffnprobe.reading.projection import gather
from ffnprobe.tracing.account import check_closed
from ffnprobe.tracing.attribution import Pushes, attribute
from ffnprobe.tracing.trace import Trace, one_token, predicted

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


def gather_written(trace: Trace, end: int) -> Written:
    """Add up what was written at the positions before `end`, by kind and layer."""
    model = trace.model
    tokens, embedded = model.embedding[list(trace.ids[:end])], model.position_embedding
    shape = (model.config.layers, end, model.config.d_model)
    neurons, heads, biases = (torch.zeros(shape, device=model.device) for _ in range(3))
    amounts = trace.amounts[:, :end]
    pattern = "... head d_head, head d_head d_model -> ... d_model"
    for layer, attention in enumerate(model.attention):
        bias, gain = attention.for_heads(attention.value_bias), post_gain(trace, layer, slice(end))
        z = trace.z[layer, :end].to(model.device)
        heads[layer] = einsum(z - bias, attention.out, pattern) * gain
        biases[layer] = (einsum(bias, attention.out, pattern) + attention.out_bias) * gain
        biases[layer] += model.answer_biases[layer]
        neurons[layer] = einsum(
            amounts[layer].to(model.device), model.answers[layer],
            "pos neuron, neuron d_model -> pos d_model",
        )  # fmt: skip
    positions = torch.zeros_like(tokens) if embedded is None else embedded[:end]
    return Written(torch.stack([tokens, positions]), neurons, heads, biases)


def read_pieces(pieces: Sequence[Pushes]) -> Readers:
    """Return the readers of an answer's pieces, each at its own position, alike at every level."""
    trace, model = pieces[0].trace, pieces[0].trace.model
    shape = (model.config.layers + 1, pieces[-1].position + 1, model.config.d_model)
    readers = torch.zeros(shape, device=model.device)
    for piece in pieces:
        readers[:, piece.position] = piece.direction / trace.final_scale[piece.position]
    return readers


@dataclass(frozen=True, eq=False)
class Step:
    """What every head pushed along the readers of what it wrote, shared among what it found.

    `shares` add up to `pushes`; `earlier` are the readers of what stands before the heads.
    """

    readers: Readers
    pushes: Float[Tensor, "layer head"]
    shares: Float[Tensor, "layer head pos kind"]
    earlier: Readers

    @property
    def totals(self) -> Float[Tensor, "layer head"]:
        """What every head's shares add up to, in float64."""
        return self.shares.double().sum(dim=(2, 3))


def step_back(trace: Trace, readers: Readers, written: Written) -> Step:
    """Take readers one step back through every head."""
    c, end = trace.model.config, readers.shape[1]
    pushes = torch.zeros(c.layers, c.heads)
    shares = torch.zeros(c.layers, c.heads, end, len(KINDS))
    earlier = torch.zeros_like(readers)
    for layer, stream in enumerate(written.streams()):
        if not readers[layer + 1].any():
            continue  # after each step one layer more has nobody above it left
        pushes[layer] = reduce(push_heads(trace, layer, readers), "pos head -> head", "sum").cpu()
        through = read_through_ov(trace, layer, readers)
        pattern = "head pos d_model, kind pos d_model -> head pos kind"
        shares[layer] = einsum(through, stream, pattern).cpu()
        earlier[: layer + 1] += reduce(through, "head pos d_model -> pos d_model", "sum")
    return Step(readers, pushes, shares, earlier)


def push_heads(trace: Trace, layer: int, readers: Readers) -> Float[Tensor, "pos head"]:
    """Return how much what each head of a layer wrote at each position counts along the readers."""
    attention, end = trace.model.attention[layer], readers.shape[1]
    z = trace.z[layer, :end].to(readers.device) - attention.for_heads(attention.value_bias)
    return einsum(
        z, _read_z(trace, layer, readers[layer + 1], slice(end)),
        "pos head d_head, pos head d_head -> pos head",
    )  # fmt: skip


def push_neurons(trace: Trace, readers: Readers) -> Float[Tensor, "layer pos neuron"]:
    """Return how much each neuron's answer at each position counts through heads along the readers."""
    amounts = trace.amounts[:, : readers.shape[1]]
    pushes = torch.zeros_like(amounts)
    pattern = "pos d_model, neuron d_model -> pos neuron"
    for layer in range(trace.model.config.layers - 1):  # the last layer's are read by no head
        if readers[layer + 1].any():
            along = einsum(readers[layer + 1], trace.model.answers[layer], pattern)
            pushes[layer] = along.cpu() * amounts[layer]
    return pushes


@torch.no_grad()
def push_through_heads(
    trace: Trace, readers: Readers, sites: Sequence[Site]
) -> Float[Tensor, "site layer head"]:
    """Return how much each head carried of each neuron's answer from its position, along readers."""
    model, positions = trace.model, [position for _, position in sites]
    pushes = torch.zeros(len(sites), model.config.layers, model.config.heads)
    if not sites:
        return pushes
    answers = gather(model.answers, [name for name, _ in sites])
    layers = torch.tensor([name.layer for name, _ in sites])
    amounts = torch.stack([trace.amounts[n.layer, at, n.neuron] for n, at in sites])
    for layer in range(model.config.layers):
        if not (layers < layer).any() or not readers[layer + 1].any():
            continue
        through = read_through_ov(trace, layer, readers)[:, positions]
        along = einsum(answers, through, "site d_model, head site d_model -> site head")
        pushes[:, layer] = along.cpu() * amounts[:, None] * (layers < layer)[:, None]
    return pushes


def find_strongest(shares: Float[Tensor, "*step layer head"]) -> tuple[int, ...]:
    """Find the head with the most in the direction of the sum: its (step,) layer and head."""
    toward = shares * (1.0 if shares.double().sum() >= 0 else -1.0)
    # numpy's: torch's imports sympy, which takes a sixth of a cold `explain`
    return tuple(map(int, np.unravel_index(int(toward.argmax()), toward.shape)))


def read_through_ov(
    trace: Trace, layer: int, readers: Readers
) -> Float[Tensor, "head pos d_model"]:
    """Return the direction c along which what stands at each position counts through each head."""
    # In the first step only one position is read: no product with the zeros elsewhere.
    start = int(readers[layer + 1].any(dim=-1).int().argmax())
    along = read_values(trace, layer, readers[layer + 1, start:], start=start)
    values = trace.model.attention[layer].for_heads(trace.model.attention[layer].value)
    return einsum(along, values, "head pos d_head, head d_head d_model -> head pos d_model")


def read_values(
    trace: Trace, layer: int, along: Float[Tensor, "... query d_model"], *, start: int = 0
) -> Float[Tensor, "... head pos d_head"]:
    """Turn readers of what attention writes, from `start` on, into readers of its heads' values.

    What stands at a position counts by the product of its value with them; the norm's scale is in it.
    """
    if trace.patterns is None:
        raise OptionRefused(
            "this trace was run without attention patterns.", remedy="run(..., patterns=True)"
        )
    end = start + along.shape[-2]
    readers = einsum(
        trace.patterns[layer, :, start:end, :end].to(along.device),
        _read_z(trace, layer, along, slice(start, end)),
        "head query pos, ... query head d_head -> ... head pos d_head",
    )
    scales = measure_scale(trace.model, trace.before_attention[layer, :end].to(along.device))
    return readers / scales[:, None]


def _read_z(
    trace: Trace, layer: int, along: Float[Tensor, "... pos d_model"], positions: slice
) -> Float[Tensor, "... pos head d_head"]:
    """Turn readers of what a layer's attention writes into readers of its heads' outputs z."""
    through = along * post_gain(trace, layer, positions)
    out = trace.model.attention[layer].out
    return einsum(through, out, "... pos d_model, head d_head d_model -> ... pos head d_head")


def post_gain(trace: Trace, layer: int, positions: slice) -> Float[Tensor, "pos #d_model"]:
    """Return what the norm that attention writes through multiplies by: 1 where there is none."""
    gain, scales = trace.model.attention[layer].post_gain, trace.attention_post_scales
    if gain is None or scales is None:
        return torch.ones(1, 1, device=trace.model.device)
    return gain / rearrange(scales[layer, positions], "pos -> pos 1").to(gain.device)


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

    def name_heads(self, sites: Sequence[Site]) -> list[tuple[str, float]]:
        """Name the head that carried most of each neuron's push from its position, and how much."""
        named = []
        for shares in push_through_heads(self.pushes.trace, self.readers, sites):
            layer, head = find_strongest(shares)
            carried = float(shares[layer, head])
            named.append((f"L{layer}H{head}" if carried else "", carried))
        return named


@torch.no_grad()
def find_owners(pushes: Pushes) -> Owners:
    """Give every head's push back to what it carried, through as many heads as there are."""
    trace, model, end = pushes.trace, pushes.trace.model, pushes.position
    readers = read_pieces([pushes])
    for layer in reversed(range(model.config.layers)):
        through = read_through_ov(trace, layer, readers)
        through_all = reduce(through, "head pos d_model -> pos d_model", "sum")
        readers[layer] = readers[layer + 1] + through_all
    written = gather_written(trace, end + 1)
    neurons = push_neurons(trace, readers)
    neurons[:-1, end] -= pushes.values[:-1]
    every = "kind pos d_model, pos d_model -> pos"
    each = "layer pos d_model, layer pos d_model -> pos"
    owners = Owners(
        pushes=pushes,
        readers=readers,
        through=neurons,
        embeddings=einsum(written.embeddings, readers[0], every).cpu(),
        biases=einsum(written.biases, readers[1:], each).cpu(),
    )
    shown = model.vocab.show(pushes.answer)
    named = f"the logit of {shown}, heads given back to what they carried,"
    check_closed(owners.total, pushes.logit, named=named)
    return owners


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
def table_neuron(trace: Trace, neuron: str | NeuronId, answer: str | int | None) -> pd.DataFrame:
    """Table a neuron's score (and its gate's, if it has one), activation and push at every position.

    With an answer, which comes after the last position: its direct push there (0 before), and what heads
    carried there of what it wrote at each position, as `attribute`, `paths` and `explain` have them. Without
    one, its direct push toward the model's own prediction at each position. Both are centred, in logits.
    """
    model = trace.model
    name = model.find_neuron(neuron)
    own = (name.layer, slice(None), name.neuron)
    if answer is None:
        toward = [predicted(trace, position) for position in range(len(trace))]
    else:
        toward = [one_token(model, answer, use="a neuron's push")] * len(trace)
    directions = model.unembedding[toward] - model.mean_unembedding
    own_answer = model.answers[name.layer, name.neuron]
    lifts = einsum(directions, own_answer, "pos d_model, d_model -> pos")
    pushes = trace.amounts[own] * lifts.cpu() / trace.final_scale
    columns = {} if trace.gate_scores is None else {"gate_score": trace.gate_scores[own].tolist()}
    columns |= {"score": trace.scores[own].tolist(), "activation": trace.activations[own].tolist()}
    if answer is not None:
        pushes[:-1] = 0
    columns["push"] = pushes.tolist()
    if answer is not None and trace.patterns is not None:
        owners = find_owners(attribute(trace, toward[-1]).pieces[0])
        columns["push_through_attention"] = owners.through[own].tolist()
    table = pd.DataFrame({"position": range(len(trace)), "token": trace.tokens, **columns})
    return table.assign(toward=model.vocab.show_all(toward))

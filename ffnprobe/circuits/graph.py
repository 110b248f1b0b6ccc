"""The graph of a circuit: nodes kept by influence, and what each added to the next. Every node closes.

Sources are embeddings and neurons at positions; targets the answer, and each kept neuron's score and gate. A
target's score is read from the stream along q_n / s (its gate's along g_n / s, the answer's logit along
u_t / s_T). That reader is taken back, layer by layer, through the heads alone: other neurons are nodes of
their own and are held. So with R_v the reader of target v,

    drive of source u on v = a_u (w_u · R_v)       directly, if u stands where v reads, and through heads
    score of v = Σ kept sources + biases + rest

Rest is what all neurons that are not kept add, made from their own answers and not as a difference, so
that the sum is a check: it is the score captured within 1e-3, or an error gives both numbers. The
target's own bias (for the answer: the unembedding's, and what centring takes away) is with the biases.

A head is named by what it reads: of all that a source added through attention, `through` is the head that
took most of it from the source's position.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from einops import einsum
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ffnprobe.circuits.influence import read_answers
from ffnprobe.names import NeuronId, Site
from ffnprobe.reading.projection import gather, name_site
from ffnprobe.tracing.account import check_closed
from ffnprobe.tracing.attention import post_gain, read_values
from ffnprobe.tracing.attribution import Pushes
from ffnprobe.tracing.contrast import Contrast
from ffnprobe.tracing.trace import Trace

# What is smaller than this share of the largest influence is rounding, and not kept.
ROUNDING = 1e-6
# So many numbers of readers at a time: half a MB in fp32.
NUMBERS_AT_ONCE = 2**17
ANSWER, BIASES, REST = "answer", "biases", "rest"


class Node(NamedTuple):
    """Something that writes to the stream at a position; `layer` is -1 for what enters it."""

    kind: str
    layer: int
    neuron: int
    position: int

    @property
    def is_neuron(self) -> bool:
        return self.kind == "neuron"

    @property
    def neuron_id(self) -> NeuronId:
        return NeuronId(self.layer, self.neuron)

    @property
    def name(self) -> str:
        """Name the node once and for all: `L3N12@5`, `embedding@5`."""
        what = str(self.neuron_id) if self.is_neuron else self.kind
        return f"{what}@{self.position}"


@dataclass(frozen=True, eq=False)
class Sources:
    """What edges come from, in the order of columns: embeddings first, then neurons.

    A source writes `amounts` × `directions` at its position. `gaps` is by how much that is above what stands
    there when it is removed.
    """

    nodes: tuple[Node, ...]
    directions: Float[Tensor, "source d_model"]
    amounts: Float[Tensor, " source"]
    gaps: Float[Tensor, "source d_model"]

    def at(self, position: int, *, below: int) -> list[int]:
        """List the sources at a position that a layer's attention reads."""
        nodes = enumerate(self.nodes)
        return [n for n, node in nodes if node.position == position and node.layer < below]


def choose_kept(
    influence: Float[Tensor, "layer pos neuron"], keep: int, *, sign: str = "both"
) -> list[Site]:
    """Name the neurons of largest influence, the strongest first, ties by name."""
    ranked = (influence.abs() if sign == "both" else influence).ravel()
    # Only what can be among the first is put in order: there may be millions of neurons at positions.
    least = ranked.topk(min(keep, len(ranked))).values[-1]
    floor = ROUNDING * max(float(influence.max()), -float(influence.min()))
    candidates = ((ranked >= least) & (ranked > floor)).nonzero()[:, 0].tolist()
    named = [(-float(ranked[cell]), name_site(cell, influence.shape)) for cell in candidates]
    return [site for _, site in sorted(named)[:keep]]


def mark(kept: Sequence[Site], like: Float[Tensor, "layer pos neuron"]) -> Bool[Tensor, "..."]:
    """Mark neurons at positions among all."""
    marked = torch.zeros_like(like, dtype=torch.bool)
    for name, position in kept:
        marked[name.layer, position, name.neuron] = True
    return marked


def gather_sources(
    trace: Trace, kept: Sequence[Site], replacement: Float[Tensor, "layer #pos neuron"],
    contrast: Contrast | None,
) -> Sources:  # fmt: skip
    """Gather what the words and the kept neurons write, and what of it is above their removal."""
    model, length = trace.model, len(trace)
    tokens = model.embedding[list(trace.ids)]
    parts, gaps = [tokens], [tokens - _mean_embedding(model.embedding, trace, contrast, ids=True)]
    nodes = [Node("embedding", -1, -1, position) for position in range(length)]
    table = model.position_embedding
    if table is not None:
        parts.append(table[:length])
        gaps.append(table[:length] - _mean_embedding(table, trace, contrast, ids=False))
        nodes += [Node("position", -1, -1, position) for position in range(length)]
    amounts = torch.ones(len(nodes))
    if kept:
        nodes += [Node("neuron", name.layer, name.neuron, position) for name, position in kept]
        layers, neurons = [name.layer for name, _ in kept], [name.neuron for name, _ in kept]
        positions = [position for _, position in kept]
        acted = trace.activations[layers, positions, neurons]
        removed = replacement.expand_as(trace.activations)[layers, positions, neurons]
        if trace.mlp_post_scales is not None:
            scales = trace.mlp_post_scales[layers, positions]
            acted, removed = acted / scales, removed / scales
        parts.append(gather(model.answers, [name for name, _ in kept]))
        amounts = torch.cat([amounts, acted])
        gaps.append((acted - removed).to(model.device)[:, None] * parts[-1])
    return Sources(tuple(nodes), torch.cat(parts), amounts, torch.cat(gaps))


def _mean_embedding(
    table: Float[Tensor, "row d_model"], trace: Trace, contrast: Contrast | None, *, ids: bool
) -> Float[Tensor, "pos d_model"]:
    """Return what stands at each position on the contrast prompts; without them, nothing."""
    means = torch.zeros(len(trace), table.shape[-1], device=table.device)
    if contrast is None:
        return means
    others = list(zip(contrast.others, contrast.alignment.counterparts, strict=True))
    for position in range(len(trace)):
        # Behind the prompt, at the answer's pieces, there is no counterpart.
        matched = [(o, each[position]) for o, each in others if position < len(each)]
        rows = [o.ids[there] if ids else there for o, there in matched if there is not None]
        here = trace.ids[position] if ids else position  # of a position without a counterpart
        means[position] = table[rows or [here]].mean(dim=0)
    return means


@dataclass(frozen=True, eq=False)
class Target:
    """A score that is accounted for: a kept neuron's, its gate's, or (without a node) the answer's."""

    node: Node | None
    asks: str
    level: int  # it reads what layers below this one wrote, and this one's attention
    positions: tuple[int, ...]
    readers: Float[Tensor, "position d_model"]  # along which it reads the stream, at positions
    constant: float
    measured: float

    @property
    def name(self) -> str:
        return ANSWER if self.node is None else self.node.name


class Edges(NamedTuple):
    """Every target's account: rows are targets, columns sources.

    `owed` is the part of a drive that goes when the source is removed, the target's other sources held.
    `head` is layer × heads + head, of the head that took most; -1 where no head took any.
    """

    drives: Float[Tensor, "target source"]
    direct: Float[Tensor, "target source"]
    owed: Float[Tensor, "target source"]
    head: Int[Tensor, "target source"]
    carried: Float[Tensor, "target source"]
    biases: Float[Tensor, " target"]
    rest: Float[Tensor, " target"]

    @property
    def total(self) -> Float[Tensor, " target"]:
        """What all that is known adds up to: the score."""
        return self.drives.double().sum(dim=-1) + self.biases.double() + self.rest.double()


def list_targets(trace: Trace, kept: Sequence[Site], pieces: Sequence[Pushes]) -> list[Target]:
    """List what is accounted for: the answer, then every kept neuron's score and gate."""
    model = trace.model
    constant = sum(sum(piece.account.constants.values()) for piece in pieces)
    logit = sum(piece.logit for piece in pieces)
    ends = [piece.position for piece in pieces]
    reader = read_answers(pieces)[ends]
    targets = [Target(None, ANSWER, model.config.layers, tuple(ends), reader, constant, logit)]
    asked = [("question", model.questions, model.question_biases, trace.scores)]
    if model.gates is not None and model.gate_biases is not None and trace.gate_scores is not None:
        asked.append(("gate", model.gates, model.gate_biases, trace.gate_scores))
    for name, position in kept:
        layer, neuron = name.layer, name.neuron
        node = Node("neuron", layer, neuron, position)
        for asks, rows, biases, scores in asked:
            reader = rows[layer, neuron, None] / trace.scales[layer, position].to(model.device)
            bias, score = float(biases[layer, neuron]), float(scores[layer, position, neuron])
            targets.append(Target(node, asks, layer, (position,), reader, bias, score))
    return targets


@torch.no_grad()
def draw_edges(
    trace: Trace, targets: Sequence[Target], sources: Sources, kept: Sequence[Site]
) -> Edges:
    """Account for every target, some at a time, or raise if one does not close."""
    model, is_kept = trace.model, mark(kept, trace.activations)
    pattern = "pos neuron, neuron d_model -> pos d_model"
    rest = torch.stack(
        [
            einsum(amounts.masked_fill(out, 0.0).to(model.device), model.answers[layer], pattern)
            for layer, (amounts, out) in enumerate(zip(trace.amounts, is_kept, strict=True))
        ]
    )
    size = max(1, NUMBERS_AT_ONCE // trace.final.numel())
    # Those that read late first: a batch begins at the latest layer it reads.
    order = sorted(range(len(targets)), key=lambda number: -targets[number].level)
    parts = []
    for first in range(0, len(order), size):
        batch = [targets[number] for number in order[first : first + size]]
        parts.append(_Walk(trace, batch, sources, rest).run())
    back = torch.tensor(order).argsort()
    edges = Edges(*(torch.cat(each)[back] for each in zip(*parts, strict=True)))
    for target, total in zip(targets, edges.total.tolist(), strict=True):
        gate = "the gate of " if target.asks == "gate" else ""
        named = f"the score of {gate}{target.name}" if target.node else "the answer's logit"
        check_closed(total, target.measured, named=named)
    return edges


class _Walk:
    """Some targets' readers on their way back, sorted by level, the latest first."""

    def __init__(
        self, trace: Trace, targets: Sequence[Target], sources: Sources, rest: Tensor
    ) -> None:
        self.trace, self.model, self.sources, self.rest = trace, trace.model, sources, rest
        self.targets, self.levels = targets, [target.level for target in targets]
        self.stream = torch.zeros(len(targets), *trace.final.shape).to(rest)
        shape = (len(targets), len(sources.nodes))
        self.along, self.owed = torch.zeros(2, *shape, device=self.model.device)
        # By how much the head that added most, and the one that took most away, did so, per unit.
        self.most = torch.zeros(2, *shape, device=self.model.device)
        self.by = torch.full((2, *shape), -1, device=self.model.device)
        self.biases = torch.tensor([target.constant for target in targets]).to(rest)
        self.left = torch.zeros_like(self.biases)

    def run(self) -> Edges:
        layers, is_parallel = self.model.config.layers, self.model.config.is_parallel
        self._join(layers)
        for layer in reversed(range(min(self.levels[0] + 1, layers))):
            self._read_mlp(layer)
            if not is_parallel:
                self._join(layer)
            self._read_heads(layer)
            if is_parallel:
                self._join(layer)
        self._read_sources(-1, len(self.levels))
        direct = torch.zeros_like(self.along)
        for row, target in enumerate(self.targets):
            for position, reader in zip(target.positions, target.readers, strict=True):
                own = self.sources.at(position, below=target.level)
                direct[row, own] += self.sources.directions[own] @ reader
        amounts, is_up = self.sources.amounts.to(self.along), self.along - direct >= 0
        carried = torch.where(is_up, self.most[0], -self.most[1])
        edges = Edges(
            drives=self.along * amounts, direct=direct * amounts, owed=self.owed,
            head=torch.where(is_up, self.by[0], self.by[1]), carried=carried * amounts,
            biases=self.biases, rest=self.left,
        )  # fmt: skip
        return Edges(*(each.cpu() for each in edges))

    def _join(self, level: int) -> None:
        """Let the targets begin that read at this level."""
        for row, target in enumerate(self.targets):
            if target.level == level:
                self.stream[row, list(target.positions)] = target.readers

    def _count(self, level: int) -> int:
        """Say how many targets, of the first, read at this level or later."""
        return sum(each >= level for each in self.levels)

    def _read_sources(self, layer: int, rows: int) -> None:
        """Read what this layer's kept neurons wrote (-1: the embeddings)."""
        nodes = self.sources.nodes
        own = [number for number, node in enumerate(nodes) if node.layer == layer]
        if not own or not rows:
            return
        readers = self.stream[:rows, [nodes[number].position for number in own]]
        pattern = "source d_model, row source d_model -> row source"
        self.along[:rows, own] = einsum(self.sources.directions[own], readers, pattern)
        self.owed[:rows, own] = einsum(self.sources.gaps[own], readers, pattern)

    def _read_mlp(self, layer: int) -> None:
        rows = self._count(layer + 1)
        self._read_sources(layer, rows)
        readers = self.stream[:rows]
        self.left[:rows] += einsum(readers, self.rest[layer], "row pos d_model, pos d_model -> row")
        bias = self.model.answer_biases[layer]
        self.biases[:rows] += einsum(readers, bias, "row pos d_model, d_model -> row")

    def _read_heads(self, layer: int) -> None:
        is_parallel, a = self.model.config.is_parallel, self.model.attention[layer]
        rows = self._count(layer + 1 if is_parallel else layer)
        if not rows:
            return
        pattern = "head d_head, head d_head d_model -> d_model"
        bias = einsum(a.for_heads(a.value_bias), a.out, pattern) + a.out_bias
        written = bias * post_gain(self.trace, layer, slice(len(self.trace)))
        readers = self.stream[:rows]
        pattern = "row pos d_model, pos d_model -> row"
        self.biases[:rows] += einsum(readers, written.expand_as(readers[0]), pattern)
        sought = read_values(self.trace, layer, readers)
        values = a.for_heads(a.value)
        self._name_heads(layer, rows, sought, values)
        pattern = "row head pos d_head, head d_head d_model -> row pos d_model"
        self.stream[:rows] += einsum(sought, values, pattern)

    def _name_heads(self, layer: int, rows: int, sought: Tensor, values: Tensor) -> None:
        """Keep, of each edge, the head that added most and the one that took most away."""
        for position in range(len(self.trace)):
            own = self.sources.at(position, below=layer)
            if not own:
                continue
            pattern = "source d_model, head d_head d_model -> source head d_head"
            read = einsum(self.sources.directions[own], values, pattern)
            pattern = "row head d_head, source head d_head -> row source head"
            shares = einsum(sought[:, :, position], read, pattern)
            best = torch.stack([shares, -shares]).max(dim=-1)
            most, by = self.most[:, :rows, own], self.by[:, :rows, own]
            is_more, heads = best.values > most, best.indices + layer * len(values)
            self.most[:, :rows, own] = torch.where(is_more, best.values, most)
            self.by[:, :rows, own] = torch.where(is_more, heads, by)

"""The nodes of a circuit: embeddings and neurons at positions, kept by influence."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ffnprobe.names import NeuronId
from ffnprobe.reading.projection import gather, name_site
from ffnprobe.tracing.attention import Source
from ffnprobe.tracing.contrast import Contrast
from ffnprobe.tracing.trace import Trace

# What is smaller than this share of the largest influence is rounding, and not kept.
ROUNDING = 1e-6


class Node(NamedTuple):
    """Something that writes to the stream at a position; `layer` is -1 for what enters it."""

    kind: str
    layer: int
    neuron: int
    position: int

    @property
    def neuron_id(self) -> NeuronId:
        """The neuron's name, of a node that is one."""
        return NeuronId(self.layer, self.neuron)

    @property
    def name(self) -> str:
        """Name the node once and for all: `L3N12@5`, `embedding@5`."""
        what = str(self.neuron_id) if self.kind == "neuron" else self.kind
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

    @cached_property
    def layers(self) -> list[int]:
        """The layer of each, -1 for the embeddings."""
        return [node.layer for node in self.nodes]

    @cached_property
    def positions(self) -> list[int]:
        """The position of each."""
        return [node.position for node in self.nodes]

    def at(self, position: int, *, below: int) -> list[int]:
        """List the sources at a position that a layer's attention reads."""
        return [
            number
            for number, node in enumerate(self.nodes)
            if node.position == position and node.layer < below
        ]


def choose_kept(
    influence: Float[Tensor, "layer pos neuron"], keep: int, *, sign: str = "both"
) -> list[Source]:
    """Name the neurons of largest influence, the strongest first, ties by name."""
    ranked = rank_values(influence, sign).ravel()
    # Only what can be among the first is put in order: there may be millions of neurons at positions.
    least = ranked.topk(min(keep, len(ranked))).values[-1]
    floor = ROUNDING * max(float(influence.max()), -float(influence.min()))
    candidates = ((ranked >= least) & (ranked > floor)).nonzero()[:, 0].tolist()
    named = [(-float(ranked[cell]), name_site(cell, influence.shape)) for cell in candidates]
    return [site for _, site in sorted(named)[:keep]]


def rank_values(values: Tensor, sign: str) -> Tensor:
    """Return what nodes are ranked by: their size, or only how far they go toward the answer."""
    return values.abs() if sign == "both" else values


def mark(kept: Sequence[Source], like: Float[Tensor, "layer pos neuron"]) -> Bool[Tensor, "..."]:
    """Mark neurons at positions among all."""
    marked = torch.zeros_like(like, dtype=torch.bool)
    for name, position in kept:
        marked[name.layer, position, name.neuron] = True
    return marked


def gather_sources(
    trace: Trace,
    kept: Sequence[Source],
    replacement: Float[Tensor, "layer #pos neuron"],
    contrast: Contrast | None,
) -> Sources:
    """Gather what the words and the kept neurons write, and what of it is above their removal."""
    model, length = trace.model, len(trace)
    given = replacement.expand_as(trace.activations)
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
        own = torch.stack([trace.activations[n.layer, position, n.neuron] for n, position in kept])
        removed = torch.stack([given[n.layer, position, n.neuron] for n, position in kept])
        scales = trace.mlp_post_scales
        if scales is not None:
            held = torch.stack([scales[n.layer, position] for n, position in kept])
            own, removed = own / held, removed / held
        parts.append(gather(model.answers, [name for name, _ in kept]))
        amounts = torch.cat([amounts, own])
        gaps.append((own - removed).to(model.device)[:, None] * parts[-1])
    return Sources(tuple(nodes), torch.cat(parts), amounts, torch.cat(gaps))


def _mean_embedding(
    table: Float[Tensor, "row d_model"], trace: Trace, contrast: Contrast | None, *, ids: bool
) -> Float[Tensor, "pos d_model"]:
    """Return what stands at each position on the contrast prompts; without them, nothing.

    A position without a counterpart is left as it is: there it is what stands here.
    """
    found = torch.zeros(len(trace), table.shape[-1], device=table.device)
    if contrast is None:
        return found
    counterparts = contrast.alignment.counterparts
    for position in range(len(trace)):
        rows = []
        for other, matched in zip(contrast.others, counterparts, strict=True):
            there = matched[position] if position < len(matched) else None
            if there is not None:
                rows.append(other.ids[there] if ids else there)
        own = trace.ids[position] if ids else position
        found[position] = table[rows or [own]].mean(dim=0)
    return found

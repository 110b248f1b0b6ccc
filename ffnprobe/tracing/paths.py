"""Paths through attention: every head's push toward an answer, shared among what it carried.

    push of head (l, h) = Σ_j Σ_parts p at j   A_Tj · (u_t · O_h V_h p) / (s_l(j) · s_T)

j are the positions the head looked at from T, p what layers below l wrote there: token and position
embedding, every neuron, every head, every bias. A neuron at an earlier position so has a push after
all, through attention: one number for each head, added up over heads.

Patterns and scales are taken as they were, so the shares are exact: for every head they add up to its
push in `attribute` within 1e-3, or an error says both numbers. A head's own value bias is not among
them: `attribute` counts it with b_O.

What a head found may have been put there by another head, so the heads it read are taken apart in turn,
to the end. With `depth` so many steps are taken; what is left of heads after the last is listed whole.
Of an answer of several tokens a part may stand at an earlier piece of the answer.

Limits: direct, as pushes are. What a part does to the patterns (where heads look), to the scales or to
later neurons is not in its push; `ablate` counts that.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Annotated, ClassVar

import pandas as pd
import torch
from einops import reduce
from jaxtyping import Float
from torch import Tensor

from ffnprobe.arguments import TOP, Answer, Convention, Option, Position, Versus, verb
from ffnprobe.errors import OptionRefused
from ffnprobe.names import NeuronId, Site
from ffnprobe.provenance import Provenance
from ffnprobe.reading.neuron_tables import Values, list_neurons
from ffnprobe.reading.projection import check_top, name_site, sort_sites, top_tokens
from ffnprobe.results import Result
from ffnprobe.tracing.account import check_closed
from ffnprobe.tracing.attention import (
    KINDS,
    Step,
    find_strongest,
    gather_written,
    push_heads,
    push_neurons,
    push_through_heads,
    read_pieces,
    step_back,
)
from ffnprobe.tracing.attribution import Pushes, PushesByPiece, Question, name_answer, name_tokens
from ffnprobe.tracing.trace import Trace, predicted

_EMBEDDINGS = ("embedding", "position")  # the first two kinds


@dataclass(frozen=True, eq=False, repr=False)
class Paths(Result):
    """Who owns what attention pushed toward an answer, in logits; of several pieces, added up.

    `neurons` are pushes through attention, over all heads and steps; `heads` what is left of the
    heads that the last step's heads read. Both are by the position where a part was written.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> fp.paths(trace, " basketball").by_position().token.tolist()[:3]
    ['<|endoftext|>', 'Michael', '␣Jordan']
    """

    in_terminal: ClassVar = ("rows", "positions")

    pushes: Pushes | PushesByPiece
    steps: tuple[Step, ...]
    neurons: Float[Tensor, "layer pos neuron"]
    heads: Float[Tensor, "layer pos head"]

    @property
    def trace(self) -> Trace:
        """The prompt's run; of an answer of several tokens, with the pieces before the last behind it."""
        return self.pushes.pieces[0].trace

    @property
    def push(self) -> float:
        """What all heads push toward the answer, in logits; biases are not heads'."""
        return float(_add_heads(self.pushes).sum())

    @property
    def logit(self) -> float:
        """The answer's logit (with versus, its lead); of several pieces, their sum."""
        return sum(piece.logit for piece in self.pushes.pieces)

    @cached_property
    def pieces(self) -> "tuple[Paths, ...]":
        """The paths to each piece of the answer by itself; of one token, these."""
        if len(self.pushes.pieces) == 1:
            return (self,)
        return tuple(_trace_back(piece, len(self.steps)) for piece in self.pushes.pieces)

    @property
    def title(self) -> str:
        """Say which answer, and how much of it came through attention."""
        answer, after = name_answer(self.provenance), name_tokens(self.pushes.pieces[0])
        return f"paths to {answer} after {after}: {self.push:+.2f} logits through heads"

    @property
    def notes(self) -> tuple[str, ...]:
        """Say how much of the logit comes through heads, and how well it adds up."""
        return (
            f"{self.provenance.answer}: logit {self.logit:.3f}, {self.push:+.3f} of it through heads; "
            f"each head's shares add up to its push within {self.remainder:.1e}",
        )

    @property
    def provenance(self) -> Provenance:
        """The model, prompt, tokens and conventions behind these numbers."""
        shown = " ".join(piece.provenance.answer or "" for piece in self.pushes.pieces)
        return replace(self.pushes.provenance, answer=shown).including(depth=len(self.steps))

    @property
    def remainder(self) -> float:
        """How far the shares of the worst head are from what it pushed: zero within tolerance."""
        return max(float((step.totals - step.pushes.double()).abs().max()) for step in self.steps)

    @property
    def caption(self) -> str:
        """How to read the table."""
        first, *later = self.pushes.pieces
        added = ", added up over the answer's pieces" if later else ""
        return (
            f"pushes in logits, {first.convention}{added}; every head's shares add up to its push"
        )

    @cached_property
    def owned(self) -> Float[Tensor, "pos kind"]:
        """What each position's parts push through attention, by kind, in the order of `KINDS`.

        Heads that were taken apart stand under what they carried, so that all add up to `push`.
        """
        shares = torch.stack([step.shares.double().sum(dim=(0, 1)) for step in self.steps])
        shares[:-1, :, KINDS.index("heads")] = 0
        return reduce(shares, "step pos kind -> pos kind", "sum")

    @property
    def table(self) -> pd.DataFrame:
        """The ten strongest paths."""
        return self.top(min(10, self.neurons.numel()))

    def tables(
        self, top: Annotated[int | None, TOP.but("How many parts to show.", default="10")] = None
    ) -> dict[str, pd.DataFrame]:
        """Name the tables a file of these paths holds."""
        k = min(10, self.neurons.numel()) if top is None else top
        tables = {
            "rows": self.top(k), "neurons": self.by_neuron(k), "heads": self.by_head(),
            "positions": self.by_position(), "parts": self.by_part(),
        }  # fmt: skip
        return tables if len(self.pushes.pieces) == 1 else tables | {"pieces": self.by_piece(k)}

    def top(self, top: int | None = 10) -> pd.DataFrame:
        """Table the `top` parts, at a position, that push hardest through attention, up or down.

        Parts are the neurons, the token embeddings and the position embeddings. `through` is the head
        that carried most of it that way, `carried` how much; `step` counts from the answer.
        """
        trace, embeddings = self.trace, self.owned[:, : len(_EMBEDDINGS)]
        values = torch.cat([*embeddings.unbind(dim=1), self.neurons.ravel().double()])
        top = check_top(top, len(values), of="neurons and embeddings at positions")
        cells, first = top_tokens(values.abs()[None], top)[1][0].tolist(), embeddings.numel()
        sites = [name_site(cell - first, self.neurons.shape) for cell in cells if cell >= first]
        acted = [float(trace.activations[n.layer, at, n.neuron]) for n, at in sites]
        neurons = zip(sites, acted, self._share(sites), strict=True)
        rows = [next(neurons) if cell >= first else self._read_embedding(cell) for cell in cells]
        parts, activations, shares = zip(*rows, strict=True)
        columns = _name_strongest(shares)
        columns |= {"activation": list(activations), "push_through_attention": values[cells]}
        table = list_neurons(trace.model, parts, columns, tokens=trace.tokens)
        return self.provenance.note(table.astype({"layer": "Int64", "neuron": "Int64"}))

    def by_neuron(self, top: int | None = 10) -> pd.DataFrame:
        """Table the `top` neurons, at a position, that push hardest through attention, up or down."""
        trace, top = self.trace, check_top(top, self.neurons.numel(), of="neurons at positions")
        sites, acted = sort_sites(self.neurons.abs(), top), trace.activations
        columns = _name_strongest(list(self._share(sites)))
        columns |= {"activation": acted, "push_through_attention": self.neurons}
        table = list_neurons(trace.model, sites, columns, signs=acted, tokens=trace.tokens)
        return self.provenance.note(table)

    def _share(self, sites: Sequence[Site]) -> Float[Tensor, "site step layer head"]:
        """Return how much each head carried of each neuron's answer, step by step."""
        steps = [push_through_heads(self.trace, step.readers, sites) for step in self.steps]
        return torch.stack(steps, dim=1)

    def _read_embedding(self, cell: int) -> tuple[tuple[str, int], None, Tensor]:
        """Name an embedding at its position, with no activation, and what each head carried of it."""
        kind, position = divmod(cell, len(self.owned))
        shares = [step.shares[:, :, position, kind] for step in self.steps]
        return (_EMBEDDINGS[kind], position), None, torch.stack(shares)

    def by_piece(self, top: int | None = 10) -> pd.DataFrame:
        """Table, for each piece of the answer, the `top` parts that push it hardest, up or down."""
        frames = []
        for piece in self.pieces:
            frame = piece.top(top)
            frame.insert(0, "piece", piece.provenance.answer)
            frames.append(frame)
        return self.provenance.note(pd.concat(frames, ignore_index=True))

    def carriers(self, neuron: str | NeuronId, position: int) -> pd.DataFrame:
        """Table how much each head carried of one neuron's answer from one position."""
        name, index = self.trace.model.find_neuron(neuron), self.trace.at(position)
        shares = self._share([(name, index)])[0]
        rows = [
            (f"L{layer}H{head}", layer, head, step + 1, float(shares[step, layer, head]))
            for step, layer, head in product(*map(range, shares.shape))
            if layer > name.layer
        ]
        table = pd.DataFrame(rows, columns=["part", "layer", "head", "step", "push"])
        return self.provenance.note(
            table.sort_values("push", key=abs, ascending=False, kind="stable", ignore_index=True)
        )

    def by_head(self) -> pd.DataFrame:
        """Table each head's push and its shares by kind, step by step; each row adds up."""
        rows = [
            (f"L{layer}H{head}", layer, head, number, float(step.pushes[layer, head]), *shares)
            for number, step in enumerate(self.steps, start=1)
            for layer, heads in enumerate(step.shares.double().sum(dim=2).tolist())
            for head, shares in enumerate(heads)
        ]
        columns = ["part", "layer", "head", "step", "push", *KINDS]
        return self.provenance.note(pd.DataFrame(rows, columns=columns))

    def by_position(self) -> pd.DataFrame:
        """Table what each position's parts push through attention, by kind."""
        frame = pd.DataFrame(self.owned.numpy(), columns=list(KINDS))
        frame.insert(0, "push", self.owned.sum(dim=-1).numpy())
        frame.insert(0, "token", self.trace.tokens[: len(frame)])
        frame.insert(0, "position", range(len(frame)))
        return self.provenance.note(frame)

    def by_part(self) -> pd.DataFrame:
        """Table every owner once, over all positions: the column `push` adds up to attention's."""
        totals = dict(zip(KINDS, self.owned.sum(dim=0).tolist(), strict=True))
        rows: list[tuple[str, str, int | None, int | None, float]] = [
            ("embedding", "embedding", None, None, totals["embedding"]),
            ("position", "position", None, None, totals["position_embedding"]),
            ("biases", "biases", None, None, totals["biases"]),
        ]
        heads = self.heads.double().sum(dim=1).tolist()
        for layer, neurons in enumerate(self.neurons.double().sum(dim=(1, 2)).tolist()):
            rows.append((f"L{layer} neurons", "neurons", layer, None, neurons))
            rows += [
                (f"L{layer}H{head}", "head", layer, head, push)
                for head, push in enumerate(heads[layer])
            ]
        # What a model does not have, or no head reads, adds nothing and has no row.
        rows = [row for row in rows if row[-1]]
        frame = pd.DataFrame(rows, columns=["part", "kind", "layer", "head", "push"])
        return self.provenance.note(frame.astype({"layer": "Int64", "head": "Int64"}))


@verb
@torch.no_grad()
def paths(
    trace: Trace,
    answer: Answer = None,
    *,
    versus: Versus = None,
    position: Position = -1,
    depth: Annotated[
        int | None, Option("1 splits heads; 2 also splits the heads that they read.", default="all")
    ] = None,
    convention: Convention = "centred",
) -> Paths:
    """List the neurons and embeddings that pushed an answer most through attention, in logits.

    Every head's push is shared among what the head carried. `depth` is how many heads are followed one
    after the other: by default as many as there are. An answer of several tokens is teacher-forced, and
    its pieces' pushes are added up.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> found = fp.paths(trace, " basketball", versus=" football")
    >>> list(found.top(1).columns)[:5]
    ['name', 'layer', 'neuron', 'position', 'token']
    """
    if trace.patterns is None:
        raise OptionRefused(
            "paths need to know where heads looked; this trace was run without attention patterns.",
            remedy="run(..., patterns=True)",
        )
    model = trace.model
    if depth is None:
        depth = model.config.layers
    if not 1 <= depth <= model.config.layers:
        raise OptionRefused(
            f"depth = {depth}: a path through {model.name} has 1 to {model.config.layers} heads.",
            remedy="1 takes heads apart, 2 also the heads they read",
        )
    index = trace.at(position)
    answer = predicted(trace, index) if answer is None else answer
    return _trace_back(Question(trace, answer, versus, convention, index).pushes, depth)


@torch.no_grad()
def _trace_back(pushes: Pushes | PushesByPiece, depth: int) -> Paths:
    """Trace an answer's pieces, all at once, back through so many heads."""
    trace, end = pushes.pieces[0].trace, pushes.pieces[-1].position
    config, written = trace.model.config, gather_written(trace, end + 1)
    # Shares are linear in what is read: the pieces, each at its own position, are read together.
    readers = read_pieces(pushes.pieces)
    steps: list[Step] = []
    neurons = torch.zeros(config.layers, end + 1, config.d_mlp)
    for number in range(1, depth + 1):
        step = step_back(trace, readers, written)
        # The first step's heads are those of `attribute`; the account is held to its numbers.
        measured = _add_heads(pushes) if number == 1 else step.pushes.double()
        worst = int((step.totals - measured).abs().nan_to_num(nan=float("inf")).argmax())
        layer, head = divmod(worst, config.heads)
        named = f"the push of L{layer}H{head}" + ("" if number == 1 else f" in step {number}")
        check_closed(float(step.totals[layer, head]), float(measured[layer, head]), named=named)
        steps.append(step)
        readers = step.earlier
        neurons += push_neurons(trace, readers)
    heads = [push_heads(trace, layer, readers).cpu() for layer in range(config.layers)]
    return Paths(pushes, tuple(steps), neurons, torch.stack(heads))


def _add_heads(pushes: Pushes | PushesByPiece) -> Float[Tensor, "layer head"]:
    """Return what each head pushes toward the answer, over all its pieces, in float64."""
    return torch.stack([piece.account.heads.double() for piece in pushes.pieces]).sum(dim=0)


def _name_strongest(shares: Sequence[Float[Tensor, "step layer head"]]) -> dict[str, Values]:
    """Name the heads that carried most in the direction of the sum, their steps, and how much."""
    strongest = [find_strongest(own) for own in shares]
    return {
        "through": [f"L{layer}H{head}" for _, layer, head in strongest],
        "step": [step + 1 for step, _, _ in strongest],
        "carried": [float(own[cell]) for own, cell in zip(shares, strongest, strict=True)],
    }

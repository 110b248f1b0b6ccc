"""The stream, stage by stage: read as if it ended there, token against token, and through one FFN.

    logit_t after a stage = x̂ · u_t + d_t, x̂ the final LayerNorm recomputed on the stream there

How far a stage moved the stream toward the answer: its change along the answer's direction,
Δx · u / |u|, with u the answer's unembedding centred over the vocabulary, so that raising every
token equally is not a move. `cosine` is between the stream (minus its mean) and u. Only the last row
is the model's own prediction. Earlier layers do not write for the unembedding, so a token that ranks
low there may be present in another form.

Tokens are compared by dot products and cosines of the stream as it is, not normalised. The first stage
is the bare token embedding; "before L0" has the position embedding added.

Through one FFN every token goes alone:

    input       x̂, the stream before the MLP, normalised (gain and shift are in the questions)
    scores      q_n · x̂ + c_n
    activations gelu(scores); with gates, f(gate scores) × scores
    output      Σ_n a_n w_n + b_out
    after       before + output

`shuffled(order)` sends the same vectors through in another order, and the columns come out in that
order, unchanged. Only attention looks at other positions; its pattern is kept too, `[head query key]`,
if the trace has it. The stream after is the one the model had (less what attention wrote beside, where
the two run in parallel); an FFN that does not lead there raises.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated

import pandas as pd
import torch
from einops import einsum, reduce
from jaxtyping import Float
from torch import Tensor

from ffnprobe.arguments import Answer, Option, Position, verb
from ffnprobe.documents.blocks import Block, Figure, Table
from ffnprobe.errors import OptionRefused
from ffnprobe.models.model import Model
from ffnprobe.models.step import (
    activate_neurons,
    normalise,
    score_questions,
    unembed,
    write,
    write_heads,
)
from ffnprobe.names import NeuronId, check_layer
from ffnprobe.provenance import Provenance
from ffnprobe.results import Result, Tables
from ffnprobe.tracing.account import check_closed
from ffnprobe.tracing.trace import Trace, line_up, one_token, predicted, rank_of


@dataclass(frozen=True, eq=False, repr=False)
class Lens(Result):
    """The answer's logit, probability and rank, and the likeliest token, stage by stage.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> fp.lens(trace, " basketball").table.part.tolist()[:4]
    ['embedding', 'attention', 'MLP', 'attention']
    """

    table: pd.DataFrame
    provenance: Provenance

    @property
    def title(self) -> str:
        """Say which answer is looked for, and where."""
        return f"lens on {self.provenance.answer} at position {self.provenance.position}"

    @property
    def caption(self) -> str:
        """How to read the table."""
        return "only the last row is the model's own reading"

    def tables(self) -> dict[str, pd.DataFrame]:
        """Name the table a file of this lens holds."""
        return {"lens": self.table}


@verb
@torch.no_grad()
def lens(trace: Trace, answer: Answer = None, *, position: Position = -1) -> Lens:
    """Read the stream after each attention and MLP as if it were the last (logit lens).

    Without an answer, the model's own prediction is looked for.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> fp.lens(trace).table.token.iloc[-1]
    '␣basketball'
    """
    model, index = trace.model, trace.at(position)
    answer = predicted(trace, index) if answer is None else answer
    token = one_token(model, answer, use="the lens")
    stream = line_up(trace, index).to(model.device)
    seen = normalise(model, stream)
    logits = unembed(model, seen)
    probabilities = torch.softmax(logits.double(), dim=-1)
    toward = model.unembedding[token] - model.mean_unembedding
    toward = toward / toward.norm()
    along = einsum(stream, toward, "stage d_model, d_model -> stage")
    cosine = einsum(seen, toward, "stage d_model, d_model -> stage") / seen.norm(dim=-1)
    layers = range(model.config.layers)
    # Before the first stage there is nothing to have moved from.
    moved = [float("nan"), *along.diff().tolist()]
    table = pd.DataFrame(
        {
            "layer": pd.array([None, *(n for n in layers for _ in range(2))], dtype="Int64"),
            "part": ["embedding", *["attention", "MLP"] * len(layers)],
            "token": model.vocab.show_all(logits.argmax(-1).tolist()),
            "token_probability": probabilities.amax(-1).tolist(),
            "logit": logits[:, token].tolist(),
            "probability": probabilities[:, token].tolist(),
            "rank": rank_of(logits, token).tolist(),
            "moved": moved,
            "cosine": cosine.tolist(),
        }
    )
    provenance = trace.provenance_at(index, answer=model.vocab.show(token))
    return Lens(provenance.note(table), provenance)


@dataclass(frozen=True, eq=False, repr=False)
class Similarity(Result):
    """Each pair of positions compared at each stage, on the diagonal each with itself.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> fp.similarity(trace).stages[:3]
    ('token embedding', 'before L0', 'after L0')
    """

    stages: tuple[str, ...]
    tokens: tuple[str, ...]
    dots: Float[Tensor, "stage pos other"]
    cosines: Float[Tensor, "stage pos other"]
    provenance: Provenance

    def document(self, tables: Tables = None) -> Iterator[Block]:
        """Lay the last stage out as a grid; every pair at every stage is folded."""
        rows = zip(self.tokens, self.cosines[-1].tolist(), strict=True)
        grid = pd.DataFrame([[token, *row] for token, row in rows])
        grid.columns = pd.Index(["", *self.tokens])  # a token may come twice
        yield Figure(self)
        yield Table(grid, f"cosines {self.stages[-1]}", is_whole=True)
        yield from self.fold(tables)

    @property
    def title(self) -> str:
        """Say what is compared."""
        return f"similarity of {' '.join(self.tokens)}"

    @property
    def table(self) -> pd.DataFrame:
        """Every pair of positions at every stage, each pair once."""
        first, second = torch.triu_indices(len(self.tokens), len(self.tokens), offset=1)
        pairs = zip(first.tolist(), second.tolist(), strict=True)
        rows = [
            (stage, one, other, self.tokens[one], self.tokens[other])
            for stage, (one, other) in product(self.stages, pairs)
        ]
        columns = ["stage", "position", "other_position", "token", "other_token"]
        table = pd.DataFrame(rows, columns=columns)
        table["dot"] = self.dots[:, first, second].double().ravel().numpy()
        table["cosine"] = self.cosines[:, first, second].double().ravel().numpy()
        return self.provenance.note(table)

    def tables(self) -> dict[str, pd.DataFrame]:
        """Name the table a file of these similarities holds."""
        return {"similarity": self.table}


@verb
@torch.no_grad()
def similarity(trace: Trace) -> Similarity:
    """Compare the vectors of all tokens, pair by pair, after every layer.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> list(fp.similarity(trace).table.columns)[-2:]
    ['dot', 'cosine']
    """
    embedded = trace.model.embedding[list(trace.ids)].cpu()
    vectors = torch.cat([embedded[None], trace.before_attention, trace.final[None]])
    dots = einsum(vectors, vectors, "stage pos d_model, stage other d_model -> stage pos other")
    norms = vectors.norm(dim=-1)
    after = (f"after L{layer}" for layer in range(trace.model.config.layers))
    return Similarity(
        stages=("token embedding", "before L0", *after),
        tokens=trace.tokens,
        dots=dots,
        cosines=dots / einsum(norms, norms, "stage pos, stage other -> stage pos other"),
        provenance=trace.provenance,
    )


@dataclass(frozen=True, eq=False, repr=False)
class Stages(Result):
    """What one FFN layer took in, asked, answered and gave out, for each token.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> fp.stages(trace, 0).table.token.tolist()[1:3]
    ['Michael', '␣Jordan']
    """

    model: Model
    layer: int
    tokens: tuple[str, ...]
    before: Float[Tensor, "pos d_model"]
    input: Float[Tensor, "pos d_model"]
    scores: Float[Tensor, "pos neuron"]
    gate_scores: Float[Tensor, "pos neuron"] | None
    activations: Float[Tensor, "pos neuron"]
    output: Float[Tensor, "pos d_model"]
    after: Float[Tensor, "pos d_model"]
    pattern: Float[Tensor, "head query key"] | None
    provenance: Provenance

    @property
    def title(self) -> str:
        """Say which layer, on which tokens."""
        return f"L{self.layer} on {' '.join(self.tokens)}"

    @property
    def caption(self) -> str:
        """How to read the table."""
        return "before, output and after are norms; an MLP treats each token on its own"

    def tables(self) -> dict[str, pd.DataFrame]:
        """Name the table a file of these stages holds."""
        return {"stages": self.table}

    @property
    def table(self) -> pd.DataFrame:
        """Each token's way: sizes (norms) of the stages, neurons above zero, the strongest.

        `reads` is the position the layer's heads attend to most, on average, with its weight.
        """
        strongest = self.activations.max(dim=-1)
        names = [str(NeuronId(self.layer, n)) for n in strongest.indices.tolist()]
        columns: dict[str, object] = {
            "position": range(len(self.tokens)),
            "token": self.tokens,
            "before": self.before.norm(dim=-1).tolist(),
        }
        if self.gate_scores is not None:
            columns["highest_gate_score"] = self.gate_scores.amax(dim=-1).tolist()
        columns |= {
            "highest_score": self.scores.amax(dim=-1).tolist(),
            "above_zero": (self.activations > 0).sum(dim=-1).tolist(),
            "strongest": names,
            "activation": strongest.values.tolist(),
            "output": self.output.norm(dim=-1).tolist(),
            "after": self.after.norm(dim=-1).tolist(),
        }
        if self.pattern is not None:
            most = reduce(self.pattern, "head query key -> query key", "mean").max(dim=-1)
            columns["reads"] = most.indices.tolist()
            columns["weight"] = most.values.tolist()
        return self.provenance.note(pd.DataFrame(columns))

    def shuffled(self, order: Sequence[int]) -> "Stages":
        """Send the same vectors through the FFN in another order (without attention's pattern)."""
        if sorted(order) != list(range(len(self.tokens))):
            raise OptionRefused(
                f"{list(order)} is not an order of {len(self.tokens)} positions.",
                remedy=f"0 to {len(self.tokens) - 1}, each once",
            )
        tokens = tuple(self.tokens[position] for position in order)
        before = self.before[list(order)]
        return _send_through(self.model, self.layer, tokens, before, self.provenance)


@verb
@torch.no_grad()
def stages(
    trace: Trace, layer: Annotated[int, Option("The layer, counted from 0.", flag="-l")] = 0
) -> Stages:
    """List, for each token, the input, scores, activations and output of one MLP.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> found = fp.stages(trace, 0)
    >>> bool((found.before + found.output - found.after).abs().max() < 1e-4)
    True
    """
    model, layers = trace.model, trace.model.config.layers
    check_layer(layer, layers=layers, named=f"L{layer}", model=model.name)
    provenance = trace.provenance_at(None, settings={"layer": layer})
    pattern = None if trace.patterns is None else trace.patterns[layer]
    before = trace.before_mlp[layer]
    ours = _send_through(model, layer, trace.tokens, before, provenance, pattern)
    after = trace.final if layer + 1 == layers else trace.before_attention[layer + 1]
    if model.config.is_parallel:
        # Attention wrote beside this MLP, into the same stream.
        after = after - write_heads(model, layer, trace.z[layer].to(model.device)).cpu()
    worst = (ours.after - after).abs().argmax()
    named = f"the stream after L{layer}, where they differ most,"
    check_closed(float(ours.after.take(worst)), float(after.take(worst)), named=named)
    return ours


@torch.no_grad()
def _send_through(
    model: Model,
    layer: int,
    tokens: tuple[str, ...],
    before: Float[Tensor, "pos d_model"],
    provenance: Provenance,
    pattern: Float[Tensor, "head query key"] | None = None,
) -> Stages:
    """Take vectors through an FFN layer, one row each."""
    seen = normalise(model, before.to(model.device))
    scores, gates = score_questions(model, layer, seen)
    activations = activate_neurons(model, scores, gates)
    output = write(model, layer, activations).cpu()
    return Stages(
        model, layer, tokens, before, seen.cpu(), scores.cpu(),
        None if gates is None else gates.cpu(), activations.cpu(), output, before + output, pattern,
        provenance,
    )  # fmt: skip

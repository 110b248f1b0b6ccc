"""The stream after every stage: read as if it were the last (lens), and token against token (similarity).

    logit_t after a stage = x̂ · u_t + d_t, x̂ the final LayerNorm recomputed on the stream there

How far a stage moved the stream toward the answer: its change along the answer's direction,
Δx · u / |u|, with u the answer's unembedding centred over the vocabulary, so that raising every
token equally is not a move. `cosine` is between the stream (minus its mean) and u. Only the last row
is the model's own prediction. Earlier layers do not write for the unembedding, so a token that ranks
low there may be present in another form.

Tokens are compared by dot products and cosines of the stream as it is, not normalised. The first stage
is the bare token embedding; "before L0" has the position embedding added.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import pandas as pd
import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from ffnprobe.arguments import Answer, Position, verb
from ffnprobe.documents.blocks import Block, Figure, Table
from ffnprobe.models.step import normalise, unembed
from ffnprobe.provenance import Provenance
from ffnprobe.results import Result, Tables
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

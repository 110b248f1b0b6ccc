"""How alike the prompt's tokens are: dot products and cosines of their vectors, layer by layer.

The first stage is the bare token embedding; "before L0" has the position embedding added, and
"after L3" is the stream that leaves layer 3. Vectors are the stream as it is, not normalised.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import pandas as pd
import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from ffnprobe.arguments import verb
from ffnprobe.documents.blocks import Block, Figure, Table
from ffnprobe.provenance import Provenance
from ffnprobe.results import Result, Tables
from ffnprobe.tracing.trace import Trace


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

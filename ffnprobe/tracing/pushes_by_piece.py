"""Pushes toward an answer of several tokens: one block per piece, none dropped.

Teacher-forced: a piece is predicted after the pieces before it, and log-probabilities add.

>>> import ffnprobe as fp
>>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
>>> pushes = fp.attribute(trace, " basketball and football")
>>> [piece.position - pushes.pieces[0].position for piece in pushes.pieces]
[0, 1, 2]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.provenance import Provenance
from ffnprobe.reading.neuron_tables import order_columns
from ffnprobe.results import Result
from ffnprobe.tracing.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

    from ffnprobe.tracing.pushes import Pushes


@dataclass(frozen=True, eq=False, repr=False)
class PushesByPiece(Result):
    """An answer of several tokens: the pushes toward each piece, at its own position.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> fp.attribute(trace, " basketball and football")
    PushesByPiece(␣basketball ␣and ␣football: log-probability -13.1...)
    """

    in_terminal: ClassVar = ("rows",)

    trace: Trace
    answer: str
    pieces: "tuple[Pushes, ...]"

    @property
    def caption(self) -> str:
        """How to read the table."""
        return "pushes in logits, piece by piece"

    @property
    def title(self) -> str:
        """Name the pieces and the log-probability of all of them."""
        shown = " ".join(piece.provenance.answer or "" for piece in self.pieces)
        return f"{shown}: log-probability {self.log_probability:.3f}"

    @property
    def values(self) -> Float[Tensor, "piece layer neuron"]:
        """Every neuron's push toward each piece, in logits."""
        return torch.stack([piece.values for piece in self.pieces])

    @property
    def log_probability(self) -> float:
        """The natural logarithm of the probability of all pieces, one after the other."""
        return sum(piece.log_probability for piece in self.pieces)

    @property
    def remainder(self) -> float:
        """The largest of the pieces' remainders."""
        return max((piece.remainder for piece in self.pieces), key=abs)

    @property
    def provenance(self) -> Provenance:
        """The model, prompt, tokens and conventions behind these numbers."""
        first = self.pieces[0]
        return self.trace.provenance_at(
            first.position, convention=first.convention, answer=self.answer
        )

    def top(self, top: int | None = 10) -> "pd.DataFrame":
        """Table, for each piece, the `top` neurons that pushed hardest toward it."""
        return order_columns(self._join([piece.top(top) for piece in self.pieces]))

    def against(self, top: int | None = 10) -> "pd.DataFrame":
        """Table, for each piece, the `top` neurons that pushed hardest away from it."""
        return order_columns(self._join([piece.against(top) for piece in self.pieces]))

    @property
    def table(self) -> "pd.DataFrame":
        """The ten neurons that pushed each piece hardest."""
        return self.top(min(10, self.pieces[0].values.numel()))

    def by_layer(self) -> "pd.DataFrame":
        """Table each layer's pushes, piece by piece."""
        return self._join([piece.by_layer() for piece in self.pieces])

    def by_part(self) -> "pd.DataFrame":
        """Table every part once for each piece: each piece's pushes add up to its logit."""
        return self._join([piece.by_part() for piece in self.pieces])

    def _join(self, frames: Sequence["pd.DataFrame"]) -> "pd.DataFrame":
        import pandas as pd

        for frame, piece in zip(frames, self.pieces, strict=True):
            frame.insert(0, "piece", self.trace.model.vocab.show(piece.answer))
            frame.insert(1, "position", piece.position)
        return self.provenance.note(pd.concat(frames, ignore_index=True))

    @property
    def notes(self) -> tuple[str, ...]:
        """Say how likely each piece is, and all of them together."""
        said = [note for piece in self.pieces for note in piece.notes]
        return (*said, f"together: log-probability {self.log_probability:.3f}")

    def tables(self, top: int | None = None) -> "dict[str, pd.DataFrame]":
        """Name the tables a file of these pushes holds, each with a block per piece."""
        rows = self.table if top is None else self.top(top)
        return {"rows": rows, "layers": self.by_layer(), "parts": self.by_part()}

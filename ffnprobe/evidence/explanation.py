"""The evidence for one answer, as tables that can be read, saved and drawn."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ffnprobe.cards import card, table_html
from ffnprobe.models.provenance import Provenance
from ffnprobe.tracing.pushes import Pushes
from ffnprobe.tracing.trace import Trace

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why the model said an answer: what it predicts, where its MLPs matter, which neurons, how much.

    predictions   the likeliest next tokens
    map           layer × position: what the answer loses without an MLP layer there (None: not asked)
    neurons       the neurons that matter, graded
    parts         who carries the answer's logit; adds up to it
    together      what removing the listed neurons at once does, beside as many random ones (or None)
    options       how it was asked for: the options of `explain`

    >>> import ffnprobe as fp
    >>> story = fp.explain(fp.load("pocket"), "Michael Jordan plays the sport of", " basketball", top=3)
    >>> list(story.tables())
    ['neurons', 'predictions', 'map', 'parts', 'together']
    """

    trace: Trace
    pushes: Pushes
    predictions: "pd.DataFrame"
    map: "pd.DataFrame | None"
    neurons: "pd.DataFrame"
    parts: "pd.DataFrame"
    together: "pd.DataFrame | None"
    provenance: Provenance
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        for table in self.tables().values():
            self.provenance.note(table)

    def __repr__(self) -> str:
        return f"Explanation({self.title})"

    @property
    def title(self) -> str:
        """Say what is explained, in one line."""
        known = self.provenance
        than = f" rather than {known.versus}" if known.versus else ""
        return f"{known.answer}{than} after {' '.join(self.trace.tokens)}"

    def tables(self) -> "dict[str, pd.DataFrame]":
        """Name the tables, in the order they are read."""
        every = {
            "neurons": self.neurons, "predictions": self.predictions, "map": self.map,
            "parts": self.parts, "together": self.together,
        }  # fmt: skip
        return {name: table for name, table in every.items() if table is not None}

    def _repr_html_(self) -> str:
        shown = self.neurons.drop(columns=["layer", "neuron"])
        note = "grade A: weights, push and effect agree; B: two of them; C: one"
        return card(f"why {self.title}", table_html(shown), note=note)

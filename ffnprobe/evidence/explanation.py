"""The evidence for one answer, as tables that can be read, saved and drawn."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ffnprobe.corpora.scans import Scan
from ffnprobe.interventions.choices import Replace
from ffnprobe.models.provenance import Provenance
from ffnprobe.results import Result, name_question, name_settings
from ffnprobe.tracing.pushes import Pushes
from ffnprobe.tracing.trace import Trace

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class ExplainOptions:
    """How an explanation was asked for: the options of `explain`."""

    top: int
    bos: bool | None
    replace: Replace | None
    convention: str
    scan: Scan | None
    effects: bool
    seed: int


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(Result):
    """Why the model said an answer: what it predicts, where its MLPs matter, which neurons, how much.

    predictions   the likeliest next tokens
    map           layer × position: what the answer loses without an MLP layer there (None: not asked)
    neurons       the neurons that matter, graded
    parts         who carries the answer's logit; adds up to it
    together      what removing the listed neurons at once does, and as many random ones (or None)
    options       how it was asked for: the options of `explain`

    >>> import ffnprobe as fp
    >>> found = fp.explain(fp.load("pocket"), "Michael Jordan plays the sport of", " basketball", top=3)
    >>> list(found.tables())
    ['neurons', 'predictions', 'map', 'parts', 'together']
    """

    pushes: Pushes
    predictions: "pd.DataFrame"
    map: "pd.DataFrame | None"
    neurons: "pd.DataFrame"
    parts: "pd.DataFrame"
    together: "pd.DataFrame | None"
    provenance: Provenance
    options: ExplainOptions

    def __post_init__(self) -> None:
        for table in self.tables().values():
            self.provenance.note(table)

    @property
    def trace(self) -> Trace:
        """The prompt's run."""
        return self.pushes.trace

    @property
    def title(self) -> str:
        """Say what is explained, in one line."""
        return name_question(self.provenance)

    @property
    def caption(self) -> str:
        """How to read the grades, and what removed means."""
        return f"grade A: weights, push and effect agree; B: two of them; C: one. {name_settings(self.provenance)}"

    @property
    def table(self) -> "pd.DataFrame":
        """The neurons that matter, graded."""
        return self.neurons

    def tables(self) -> "dict[str, pd.DataFrame]":
        """Name the tables, in the order they are read."""
        every = {
            "neurons": self.neurons, "predictions": self.predictions, "map": self.map,
            "parts": self.parts, "together": self.together,
        }  # fmt: skip
        return {name: table for name, table in every.items() if table is not None}

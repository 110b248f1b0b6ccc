"""The evidence for one answer, as tables that can be read, saved and drawn."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ffnprobe.corpora.scans import Scan
from ffnprobe.evidence.curve import Curve
from ffnprobe.evidence.grades import RANK_SAID
from ffnprobe.evidence.removals import Coverage
from ffnprobe.interventions.choices import Replace
from ffnprobe.models.provenance import Provenance
from ffnprobe.results import Result, name_question, name_settings, write_text
from ffnprobe.tracing.pushes import Pushes
from ffnprobe.tracing.pushes_by_piece import PushesByPiece
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
    contrast: tuple[str, ...] | None = None
    exact: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(Result):
    """Why the model said an answer: what it predicts, where its MLPs matter, which neurons, how much.

    predictions   the likeliest next tokens
    map           layer × position: what the answer loses without an MLP layer there (None: not asked).
                  All positions of a small model or with `exact`, else those looked at
    neurons       the neurons that matter, graded
    parts         who carries the answer's logit; adds up to it
    paths         the strongest paths: neuron at an earlier position, head that carried it, answer
    together      what removing the listed neurons at once does, and as many neurons like them (or None)
    pieces        of an answer of several tokens: each piece's own pushes and effects (or None)
    options       how it was asked for: the options of `explain`
    coverage      how many neurons were removed, and how well estimates agree with effects (or None)
    curve         which few neurons carry the answer, and what it becomes without them (or None)

    >>> import ffnprobe as fp
    >>> found = fp.explain(fp.load("pocket"), "Michael Jordan plays the sport of", " basketball", top=3)
    >>> list(found.tables())
    ['neurons', 'predictions', 'map', 'parts', 'paths', 'together', 'curve', 'sites']
    """

    pushes: Pushes | PushesByPiece
    predictions: "pd.DataFrame"
    map: "pd.DataFrame | None"
    neurons: "pd.DataFrame"
    parts: "pd.DataFrame"
    paths: "pd.DataFrame"
    together: "pd.DataFrame | None"
    pieces: "pd.DataFrame | None"
    provenance: Provenance
    options: ExplainOptions
    coverage: Coverage | None = None
    curve: Curve | None = None

    def __post_init__(self) -> None:
        for table in self.tables().values():
            self.provenance.note(table)

    def __str__(self) -> str:
        said = "\n".join([f"why {self.title}: {self.standing}", *self.verdict])
        return write_text(said, {"": self.neurons.drop(columns="position")}, self.caption)

    @property
    def rank(self) -> int:
        """The answer's rank among all tokens; of several pieces, the worst."""
        return max(piece.rank for piece in self.pushes.pieces)

    @property
    def probability(self) -> float:
        """The answer's probability; of several pieces, all of them one after the other."""
        return math.exp(self.pushes.log_probability)

    @property
    def logit(self) -> float:
        """The answer's logit (with a rival, its lead); of several pieces, their sum."""
        return sum(piece.logit for piece in self.pushes.pieces)

    @property
    def position_effects(self) -> list[float | None]:
        """What the answer loses without MLP layers at each position, added up over layers; None: not measured."""
        if self.map is None:
            return [None] * len(self.trace)
        known = self.map.groupby("position").effect.sum().to_dict()
        return [known.get(position) for position in range(len(self.trace))]

    @property
    def standing(self) -> str:
        """Say how the model ranks the answer, and whether it would give it at all."""
        many = len(self.trace.model.vocab)
        digits = 2 if self.probability > 0.999 else 1  # 99.97 % is not all
        shown = (
            f"{self.probability:.{digits}%}"
            if self.probability >= 0.001
            else f"{self.probability:.1e}"
        )
        said = f"rank {self.rank:,} of {many:,}, probability {shown}"
        if self.rank > RANK_SAID:
            said += ": this explains an answer that the model would not give"
        return said

    @property
    def verdict(self) -> tuple[str, ...]:
        """Say in sentences which few neurons carry the answer; nothing until that is known."""
        return () if self.curve is None else self.curve.verdict

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
            "parts": self.parts, "paths": self.paths, "together": self.together,
            "pieces": self.pieces,
        }  # fmt: skip
        if self.curve is not None:
            every |= {"curve": self.curve.table, "sites": self.curve.sites}
        return {name: table for name, table in every.items() if table is not None}

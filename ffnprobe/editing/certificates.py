"""The certificate of an edit: does it hold, does it hold in other words, and what else changed?

    efficacy        share of edits whose prompt now prefers the new answer to the true one
    paraphrases     the same over the other templates of the fact
    neighbourhood   share of neighbours that still prefer their true answer to the new one
    score           the harmonic mean of the three, S

as published for CounterFact (`ffnprobe.editing.cases`); "prefers" compares two probabilities. Stricter,
and for every prompt of the table: `changed` lists each one whose first choice is another now.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ffnprobe.editing.cases import KINDS
from ffnprobe.editing.drift import Drift
from ffnprobe.provenance import Provenance
from ffnprobe.results import Result

if TYPE_CHECKING:
    import pandas as pd

    from ffnprobe.editing.edits import Edited

MEASURES = {"edit": "efficacy", "paraphrase": "paraphrases", "neighbourhood": "neighbourhood"}


@dataclass(frozen=True, eq=False, repr=False)
class Certificate(Result):
    """What an edit did: `cases` it is judged by, other prompts `changed`, drift, norms.

    >>> import ffnprobe as fp
    >>> edited = fp.edit(fp.load("pocket"), "Michael Jordan plays the sport of", " tennis")
    >>> rows = [fp.FactRow("Tiger Woods plays the sport of", " golf", "sport", "Tiger Woods")]
    >>> certificate = fp.certify(edited, rows)
    >>> certificate.table.measure.tolist()
    ['efficacy', 'paraphrases', 'neighbourhood', 'score', 'facts known']
    """

    edited: "Edited"
    cases: "pd.DataFrame"
    changed: "pd.DataFrame"
    asked: int  # prompts of the table that are not of an edited fact
    known: tuple[int, int]  # of these, how many were known before and are after
    drift: Drift | None
    provenance: Provenance

    def share(self, kind: str, *, before: bool = False) -> float:
        """Return the share of cases of a kind that succeed; not a number without any."""
        own = self.cases[self.cases.kind == kind]
        return float((own.succeeds_before if before else own.succeeds).mean())

    def score(self, *, before: bool = False) -> float:
        """Return S, the harmonic mean of the three shares; not a number if one is not known."""
        shares = [self.share(kind, before=before) for kind in KINDS]
        if any(math.isnan(one) for one in shares):
            return math.nan
        return 0.0 if 0.0 in shares else 3 / sum(1 / one for one in shares)

    @property
    def title(self) -> str:
        """Say how the edit did, and what it disturbed."""
        figures = ", ".join(
            f"{name} {100 * self.share(kind):.0f}"
            for kind, name in MEASURES.items()
            if not math.isnan(self.share(kind))
        )
        told = "" if math.isnan(self.score()) else f", S {100 * self.score():.1f}"
        kl = "" if self.drift is None else f"; KL {self.drift.figures['mean_kl']:.2g} a token"
        return f"{figures}{told}; {len(self.changed):,} of {self.asked:,} other prompts changed{kl}"

    @property
    def caption(self) -> str:
        """How to read the table."""
        return (
            "shares, before and after; efficacy and paraphrases: the new answer is likelier than the "
            "true one; neighbourhood: the true one than the new; score: their harmonic mean"
        )

    @property
    def table(self) -> "pd.DataFrame":
        """The measures, before and after, and over how many cases."""
        import pandas as pd

        rows: list[tuple[str, float, float, int]] = [
            (MEASURES[kind], self.share(kind, before=True), self.share(kind), int((self.cases.kind == kind).sum()))
            for kind in KINDS
        ]  # fmt: skip
        rows.append(("score", self.score(before=True), self.score(), len(self.cases)))
        shares = [one / self.asked if self.asked else math.nan for one in self.known]
        rows.append(("facts known", shares[0], shares[1], self.asked))
        columns = ["measure", "before", "after", "cases"]
        return self.provenance.note(pd.DataFrame(rows, columns=columns))

    def tables(self) -> "dict[str, pd.DataFrame]":
        """Name the tables, in the order they are read."""
        import pandas as pd

        every = {"certificate": self.table, "cases": self.cases, "changed": self.changed}
        every |= {"edits": self.edited.table, "norms": self.edited.norms}
        if self.drift is not None:
            every["drift"] = pd.DataFrame([self.drift.figures])
        return {name: self.provenance.note(table) for name, table in every.items()}

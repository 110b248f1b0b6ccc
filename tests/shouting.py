"""A verb that only tests know: its signature is all there is of it."""

from dataclasses import dataclass
from typing import Annotated

import pandas as pd

from ffnprobe.arguments import Answer, Option, Shown, verb
from ffnprobe.provenance import Provenance
from ffnprobe.results import Result
from ffnprobe.tracing.trace import Trace, predicted


@dataclass(frozen=True, eq=False, repr=False)
class Shout(Result):
    """A word, said loudly."""

    words: tuple[str, ...]
    provenance: Provenance

    @property
    def title(self) -> str:
        return "shouted"

    @property
    def table(self) -> pd.DataFrame:
        return pd.DataFrame({"word": self.words})

    def tables(self, top: Shown = None) -> dict[str, pd.DataFrame]:
        return {"rows": self.table.head(10 if top is None else top)}


@verb
def shout(
    trace: Trace,
    answer: Answer = None,
    *,
    times: Annotated[int, Option("How often it is said.", least=1, most=9)] = 2,
    tone: Annotated[str, Option("In which tone.", choices=("loud", "shrill"))] = "loud",
) -> Shout:
    """Say an answer loudly.

    Nobody hears it.
    """
    wanted = predicted(trace) if answer is None else answer
    told = wanted if isinstance(wanted, str) else trace.model.vocab.text([wanted])
    said = told.upper() + "!" * (tone == "shrill")
    return Shout((said,) * times, trace.provenance_at(-1, answer=told))

"""What a search for tokens has found."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ffnprobe.provenance import Provenance
from ffnprobe.reading.ordering import check_top
from ffnprobe.results import Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class Search(Result):
    """The neurons found for tokens, the best first: `table` has one row each.

    >>> import ffnprobe as fp
    >>> found = fp.search(fp.load("pocket"), " basketball", top=3)
    >>> found
    Search(neurons that push toward ␣basketball)
    >>> found.top(1).name[0], found.rank
    ('L3N361', 'z')
    """

    table: "pd.DataFrame"
    provenance: Provenance

    def __len__(self) -> int:
        return len(self.table)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.table.itertuples(index=False))

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens searched for, in their shown form."""
        return self.provenance.tokens or ()

    @property
    def by(self) -> str:
        """What was compared with the tokens: `answer`, `question` or `gate`."""
        return str(self.provenance.settings["by"])

    @property
    def rank(self) -> str:
        """The column that decides the order: `z`, `cosine` or `dot`."""
        return str(self.provenance.settings["rank"])

    @property
    def is_away(self) -> bool:
        """Whether neurons that push against the tokens were searched for."""
        return bool(self.provenance.settings["away"])

    @property
    def own_tokens(self) -> str:
        """The column that lists each neuron's own tokens."""
        return name_own_tokens(by=self.by, away=self.is_away)

    @property
    def title(self) -> str:
        """Say what was searched for."""
        words = {
            ("answer", False): "neurons that push toward",
            ("answer", True): "neurons that push against",
            ("question", False): "neurons whose question is opened by",
            ("question", True): "neurons whose question is closed by",
            ("gate", False): "neurons whose gate is opened by",
            ("gate", True): "neurons whose gate is closed by",
        }
        return f"{words[self.by, self.is_away]} {' '.join(self.tokens)}"

    @property
    def caption(self) -> str:
        """How the neurons were compared."""
        known = self.provenance.settings
        layers = known["layers"]
        first, last = (layers[0], layers[-1]) if isinstance(layers, list) and layers else (0, 0)
        said = f"{self.by}s ranked by {self.rank}, {self.provenance.convention}; layers {first} to {last}"
        return said if "among" not in known else f"{said}, among {known['among']} neurons"

    def tables(self) -> "dict[str, pd.DataFrame]":
        """Name the table: the neurons."""
        return {"neurons": self.table}

    def top(self, top: int | None = 10) -> "pd.DataFrame":
        """Table the `top` best neurons."""
        return self.table.head(check_top(top, len(self), of="neurons found"))


def name_own_tokens(*, by: str, away: bool) -> str:
    """Name the column of the tokens that stand for each neuron found."""
    if by != "answer":
        return f"{by}_tokens"
    return "suppresses" if away else "promotes"

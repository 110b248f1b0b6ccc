"""The blocks a result tells itself in; each sentence and table once, for every place it is shown at.

A result's `document()` gives them in the order they are read. Renderers know blocks and nothing of verbs:
the terminal, the page, the notebook's card, Markdown, the explorer. What costs something to measure stands
in a `Section` or an `OnScreen`, which is told only where it is shown.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    import pandas as pd

# Of a table longer than this the first rows are shown, where it cannot be searched.
ROWS = 40
Tone = Literal["plain", "strong", "soft"]


class Words(NamedTuple):
    """A sentence or several: plain, strong (the first thing to read) or soft (how to read the rest)."""

    text: str
    tone: Tone = "plain"


class Tokens(NamedTuple):
    """Tokens one after the other, coloured by their values, if any."""

    tokens: Sequence[str]
    values: Sequence[float | None] | None = None


class Table(NamedTuple):
    """A table under its name.

    Of one that is whole no column may be left out for lack of room; a long one can be searched; the names of
    one that has cards lead to them.
    """

    frame: "pd.DataFrame"
    name: str = ""
    is_whole: bool = False
    is_long: bool = False
    has_cards: bool = False

    @property
    def title(self) -> str:
        """The name to show: "rows" says nothing."""
        return "" if self.name == "rows" else self.name

    @property
    def shown(self) -> "pd.DataFrame":
        """The table as people read it: without layer and neuron where a neuron's name says both."""
        hidden = ["layer", "neuron"] if "name" in self.frame else []
        return self.frame.drop(columns=hidden, errors="ignore")


class Figure(NamedTuple):
    """A figure of a result, by its name, or all of them; `instead` stands where none can be drawn."""

    result: Any
    name: str | None = None
    instead: "Block | None" = None


class Quote(NamedTuple):
    """A token within its text, coloured by its share of the strongest; its numbers, and where it is from."""

    before: str
    token: str
    after: str
    share: float
    numbers: str
    source: str


class Terms(NamedTuple):
    """Words and what they mean."""

    pairs: Mapping[str, str]


class Code(NamedTuple):
    """Something to type."""

    text: str


class Beside(NamedTuple):
    """Blocks side by side, as many as there is room for."""

    blocks: Sequence["Block"]


class Section(NamedTuple):
    """Blocks under a title; a folded one is opened by who wants to read it.

    `anchor` is what a table's cell leads here by; `mark` stands before the title: a grade.
    """

    title: str
    tell: Callable[[], Iterable["Block"]]
    is_folded: bool = False
    anchor: str = ""
    mark: str = ""


class Cards(NamedTuple):
    """Sections as cards, in a grid."""

    sections: Sequence[Section]


class OnScreen(NamedTuple):
    """What only a screen shows: colours, figures, cards."""

    tell: Callable[[], Iterable["Block"]]


Block = Words | Tokens | Table | Figure | Quote | Terms | Code | Beside | Section | Cards | OnScreen

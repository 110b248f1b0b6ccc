"""One neuron's strongest and weakest examples over a corpus, each with the text around it.

>>> import ffnprobe as fp
>>> scan = fp.scan(fp.load("pocket"), {"one": "Michael Jordan plays the sport of basketball"})
>>> list(fp.examples(scan, "L3N12").table.columns)[:6]
['name', 'layer', 'neuron', 'list', 'rank', 'activation']
"""

import os
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from ffnprobe.cards import card, tokens_html
from ffnprobe.corpora.passages import name_text
from ffnprobe.corpora.peaks import BEFORE, NO_TOKEN, Peaks
from ffnprobe.corpora.scans import Scan
from ffnprobe.models.provenance import Provenance
from ffnprobe.names import NeuronId
from ffnprobe.reading.ordering import check_k
from ffnprobe.results import Result

if TYPE_CHECKING:
    import pandas as pd


class Example(NamedTuple):
    """One activation: its size, its token in its text, and the tokens on both sides."""

    activation: float
    token: str
    text: str
    position: int
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Examples(Result):
    """A neuron's strongest and weakest activations over a corpus, and its mean.

    >>> import ffnprobe as fp
    >>> scan = fp.scan(fp.load("pocket"), {"one": "Michael Jordan plays the sport of basketball"})
    >>> fp.examples(scan, "L0N378")
    Examples(L0N378: mean 1.045, above zero on 71.43% of tokens)
    """

    name: str
    mean: float
    firing_rate: float
    strongest: tuple[Example, ...]
    weakest: tuple[Example, ...]
    provenance: Provenance

    def __str__(self) -> str:
        return self.text()

    @property
    def title(self) -> str:
        """Name the neuron with its mean activation and how often it fires."""
        return f"{self.name}: mean {self.mean:.3f}, above zero on {self.firing_rate:.2%} of tokens"

    @property
    def caption(self) -> str:
        """Which corpus the examples are from."""
        return self.provenance.describe()

    def sides(self, k: int | None = None) -> dict[str, tuple[Example, ...]]:
        """Name the two lists, at most k examples in each."""
        return {"strongest": self.strongest[:k], "weakest": self.weakest[:k]}

    def tables(self) -> "dict[str, pd.DataFrame]":
        """Name the table: the examples."""
        return {"examples": self.table}

    @property
    def table(self) -> "pd.DataFrame":
        """All examples: list, rank, activation, mean, token, text, position, before, after."""
        return self.rows()

    def rows(self, k: int | None = None) -> "pd.DataFrame":
        """Table at most k examples of each list, with the columns of `table`."""
        import pandas as pd

        neuron = NeuronId.parse(self.name)
        rows = [
            (self.name, neuron.layer, neuron.neuron, side, rank, e.activation, self.mean, e.token,
             e.text, e.position, " ".join(e.before), " ".join(e.after))
            for side, listed in self.sides(k).items()
            for rank, e in enumerate(listed, start=1)
        ]  # fmt: skip
        columns = ["name", "layer", "neuron", "list", "rank", "activation", "mean_activation",
                   "token", "text", "position", "before", "after"]  # fmt: skip
        return self.provenance.note(pd.DataFrame(rows, columns=columns))

    def text(self, k: int | None = None) -> str:
        """Write the examples so that they paste as text, the token itself in brackets."""
        lines = [self.title]
        for side, listed in self.sides(k).items():
            lines += ["", side]
            lines += [f"{e.activation:9.3f}  {quote(e)}  ({e.text}, {e.position})" for e in listed]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        parts = [f"<p>{side}</p>{_rows(listed)}" for side, listed in self.sides().items()]
        return card(self.title, *parts, note=self.caption)


def examples(
    scan: Scan | str | os.PathLike[str], neuron: str | NeuronId, k: int | None = None
) -> Examples:
    """Show a neuron's max-activating examples, and its weakest (k of each, or all a scan has kept).

    >>> import ffnprobe as fp
    >>> scan = fp.scan(fp.load("pocket"), {"one": "Michael Jordan plays the sport of basketball"})
    >>> fp.examples(scan, "L0N378", k=1).strongest[0].token
    '␣of'
    """
    opened = scan if isinstance(scan, Scan) else Scan.open(scan)
    found = opened.find(neuron)
    kept = opened.statistics.strongest.texts.shape[-1]
    many = kept if k is None else check_k(k, kept, of="examples kept of each neuron")
    facts = opened.statistics
    return Examples(
        name=str(found),
        mean=float(facts.moments.mean[found.layer, found.neuron]),
        firing_rate=float(facts.firing_rate[found.layer, found.neuron]),
        strongest=_list(opened, facts.strongest, found, many),
        weakest=_list(opened, facts.weakest, found, many),
        provenance=opened.provenance,
    )


def quote(example: Example) -> str:
    """Quote an example in one line, the token itself in brackets."""
    return f"{join(example.before)}[{example.token}]{join(example.after)}"


def join(tokens: tuple[str, ...]) -> str:
    """Write shown tokens as readable text: spaces as spaces; what cannot be seen stays marked."""
    return "".join(tokens).replace("␣", " ")


def _list(scan: Scan, peaks: Peaks, neuron: NeuronId, k: int) -> tuple[Example, ...]:
    """Look up the tokens and texts of one neuron's examples."""
    names = [text["name"] for text in scan.manifest["texts"]]
    at = (neuron.layer, neuron.neuron, slice(0, k))
    rows = zip(
        peaks.activations[at].tolist(), peaks.texts[at].tolist(), peaks.positions[at].tolist(),
        peaks.windows[at].tolist(), strict=True,
    )  # fmt: skip
    found = []
    for activation, text, position, window in rows:
        if text < 0:
            break
        before, (token, *after) = window[:BEFORE], window[BEFORE:]
        found.append(
            Example(
                activation=activation,
                token=scan.tokens[token],
                text=name_text(names, text),
                position=position,
                before=tuple(scan.tokens[t] for t in before if t != NO_TOKEN),
                after=tuple(scan.tokens[t] for t in after if t != NO_TOKEN),
            )
        )
    return tuple(found)


def _rows(listed: tuple[Example, ...]) -> str:
    """Write examples as lines of HTML, each token coloured by its activation."""
    most = max((abs(example.activation) for example in listed), default=0.0)
    lines = [
        f"{escape(join(e.before))}{tokens_html([e.token], [e.activation], most=most)}"
        f"{escape(join(e.after))} <small>{e.activation:.3f} ({escape(e.text)}, {e.position})</small>"
        for e in listed
    ]
    return "<br>".join(lines)

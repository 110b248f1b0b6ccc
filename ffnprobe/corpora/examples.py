"""One neuron's examples over a corpus, each with the text around it.

The strongest are those of highest activation, the weakest those of lowest score (of a gated neuron, its
gate's score), and those of the middle are drawn at random, at even quantiles of the activation. Examples
that are nearly the same sentence are shown once, with their number.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from ffnprobe.arguments import verb
from ffnprobe.corpora.passages import name_text
from ffnprobe.corpora.peaks import BEFORE, NO_TOKEN, Occurrences
from ffnprobe.corpora.scans import Scan
from ffnprobe.documents.blocks import Block, Figure, Quote, Section, Words
from ffnprobe.documents.html import largest
from ffnprobe.names import NeuronId
from ffnprobe.provenance import Provenance
from ffnprobe.reading.neuron_tables import order_columns
from ffnprobe.reading.projection import check_top
from ffnprobe.results import Result, Tables

if TYPE_CHECKING:
    import pandas as pd


# How many examples of the middle are shown.
MIDDLE = 5
# The share of tokens that two nearly equal sentences have in common.
ALIKE = 0.75
HEADS = {
    "strongest": "strongest (by activation)",
    "middle": "from the middle (drawn at random)",
    "weakest": "weakest (by score)",
}


class Example(NamedTuple):
    """One activation: its size, its score, its token in its text, and the tokens on both sides.

    `alike` is how many examples are nearly this one.
    """

    activation: float
    score: float
    token: str
    text: str
    position: int
    before: tuple[str, ...]
    after: tuple[str, ...]
    alike: int = 1


@dataclass(frozen=True, eq=False, repr=False)
class Examples(Result):
    """A neuron's strongest, middle and weakest examples over a corpus, and its mean.

    >>> import ffnprobe as fp
    >>> scan = fp.scan(fp.load("pocket"), {"one": "Michael Jordan plays the sport of basketball"})
    >>> fp.examples(scan, "L3N361")
    Examples(L3N361: mean 0.450, above zero on 14.29% of tokens)
    """

    name: str
    mean: float
    firing_rate: float
    strongest: tuple[Example, ...]
    weakest: tuple[Example, ...]
    middle: tuple[Example, ...]
    provenance: Provenance

    @property
    def title(self) -> str:
        """Name the neuron with its mean activation and how often it fires."""
        return f"{self.name}: mean {self.mean:.3f}, above zero on {self.firing_rate:.2%} of tokens"

    @property
    def caption(self) -> str:
        """How the lists are made, and which corpus the examples are from."""
        return (
            "strongest by activation, weakest by score, middle drawn at random; "
            f"{self.provenance.describe()}"
        )

    def sides(self, top: int | None = None) -> dict[str, tuple[Example, ...]]:
        """Name the lists, at most `top` examples in each; of the middle five, evenly spaced."""
        many = min(len(self.middle), MIDDLE, MIDDLE if top is None else top)
        ranks = [int((rank + 0.5) * len(self.middle) / many) for rank in range(many)]
        return {
            "strongest": self.strongest[:top],
            "middle": tuple(self.middle[rank] for rank in ranks),
            "weakest": self.weakest[:top],
        }

    def tables(self) -> "dict[str, pd.DataFrame]":
        """Name the table: the examples."""
        return {"examples": self.table}

    @property
    def table(self) -> "pd.DataFrame":
        """All examples: list, rank, activation, score, mean, token, text, position, before, after, alike."""
        return self.rows()

    def rows(self, top: int | None = None) -> "pd.DataFrame":
        """Table at most `top` examples of each list, with the columns of `table`."""
        import pandas as pd

        neuron = NeuronId.parse(self.name)
        rows = [
            (self.name, neuron.layer, neuron.neuron, side, rank, e.activation, e.score, self.mean,
             e.token, e.text, e.position, " ".join(e.before), " ".join(e.after), e.alike)
            for side, listed in self.sides(top).items()
            for rank, e in enumerate(listed, start=1)
        ]  # fmt: skip
        columns = ["name", "layer", "neuron", "list", "rank", "activation", "score",
                   "mean_activation", "token", "text", "position", "before", "after", "alike"]  # fmt: skip
        return self.provenance.note(pd.DataFrame(rows, columns=columns))

    def quotes(self, side: str, top: int | None = None) -> list[Quote]:
        """Quote a list's examples, each token coloured by its activation."""
        listed = self.sides(top)[side]
        most = largest([example.activation for example in listed])
        return [
            Quote(
                join(e.before), e.token, join(e.after), e.activation / most,
                f"{e.activation:9.3f}  score {e.score:7.3f}",
                f"({e.text}, {e.position}{f', {e.alike} alike' if e.alike > 1 else ''})",
            )
            for e in listed
        ]  # fmt: skip

    def quote(self, top: int | None = None) -> Iterator[Block]:
        """Quote the examples of each list, `top` at most."""
        for side, listed in self.sides(top).items():
            if listed:
                yield Section(HEADS[side], partial(self.quotes, side, top))

    def document(self, tables: Tables = None, *, top: int | None = None) -> Iterator[Block]:
        """Draw the examples, and quote `top` of each list."""
        yield Figure(self)
        yield from self.quote(top)
        yield Words(self.caption, "soft")
        yield from self.fold(tables)


@verb
def examples(
    scan: Scan | str | os.PathLike[str], neuron: str | NeuronId, top: int | None = None
) -> Examples:
    """Show a neuron's max-activating examples, its weakest (`top` of each, or all kept), and some of the middle.

    >>> import ffnprobe as fp
    >>> scan = fp.scan(fp.load("pocket"), {"one": "Michael Jordan plays the sport of basketball"})
    >>> fp.examples(scan, "L3N361", top=1).strongest[0].token
    '␣Jordan'
    """
    opened = scan if isinstance(scan, Scan) else Scan.open(scan)
    name, facts = opened.find(neuron), opened.statistics
    at = (name.layer, name.neuron)
    many = check_top(top, facts.strongest.texts.shape[-1], of="examples kept of each neuron")
    middle = _look_up(opened, facts.sample, name)
    return Examples(
        name=str(name),
        mean=float(facts.moments.mean[at]),
        firing_rate=float(facts.firing_rate[at]),
        strongest=fold(_look_up(opened, facts.strongest, name))[:many],
        weakest=fold(_look_up(opened, facts.weakest, name))[:many],
        middle=tuple(sorted(middle, key=lambda example: -example.activation)),
        provenance=opened.provenance,
    )


def strongest_examples(scan: Scan, neuron: str | NeuronId, top: int) -> tuple[Example, ...]:
    """Show a neuron's strongest examples alone."""
    return fold(_look_up(scan, scan.statistics.strongest, scan.find(neuron)))[:top]


def join_examples(neurons: "pd.DataFrame", scan: Scan) -> "pd.DataFrame":
    """Add the corpus's mean of each neuron, and its strongest example."""
    shown = [examples(scan, name, 1) for name in neurons.name]
    quoted = [quote(each.strongest[0]) if each.strongest else "" for each in shown]
    means = [each.mean for each in shown]
    return order_columns(neurons.assign(mean_activation=means, strongest_example=quoted))


def table_examples(scan: Scan, names: Sequence[str], *, top: int) -> "pd.DataFrame":
    """Table several neurons' examples, at most `top` on each side, one row each."""
    import pandas as pd

    tables = [examples(scan, name).rows(top) for name in names]
    return scan.provenance.note(pd.concat(tables, ignore_index=True))


def fold(listed: Iterable[Example]) -> tuple[Example, ...]:
    """Show examples that are nearly the same sentence once, the first of them, with their number."""
    shown: list[Example] = []
    for example in listed:
        for number, earlier in enumerate(shown):
            if are_alike(earlier, example):
                shown[number] = earlier._replace(alike=earlier.alike + 1)
                break
        else:
            shown.append(example)
    return tuple(shown)


def are_alike(one: Example, other: Example) -> bool:
    """Whether two examples have the same token, and most tokens around it the same, case aside."""
    if one.token.lower() != other.token.lower():
        return False
    pairs = [
        *zip_longest(reversed(one.before), reversed(other.before)),
        *zip_longest(one.after, other.after),
    ]
    same = sum(bool(a and b) and a.lower() == b.lower() for a, b in pairs)
    return bool(same >= ALIKE * len(pairs))


def quote(example: Example) -> str:
    """Quote an example in one line, the token itself in brackets."""
    return f"{join(example.before)}[{example.token}]{join(example.after)}"


def join(tokens: tuple[str, ...]) -> str:
    """Write shown tokens as readable text: spaces as spaces; what cannot be seen stays marked."""
    return "".join(tokens).replace("␣", " ")


def _look_up(scan: Scan, tokens: Occurrences, neuron: NeuronId) -> tuple[Example, ...]:
    """Look up the tokens and texts of one neuron's examples."""
    names, at = [text["name"] for text in scan.manifest["texts"]], (neuron.layer, neuron.neuron)
    places = (tokens.texts, tokens.positions, tokens.windows)
    is_shared = tokens.texts.ndim == 1  # a sample's tokens are those of all neurons
    columns = [tokens.activations[at], tokens.scores[at]]
    columns += [each if is_shared else each[at] for each in places]
    listed = []
    for row in zip(*(column.tolist() for column in columns), strict=True):
        activation, score, text, position, window = row
        if text < 0:
            break
        before, (token, *after) = window[:BEFORE], window[BEFORE:]
        listed.append(
            Example(
                activation=activation,
                score=score,
                token=scan.tokens[token],
                text=name_text(names, text),
                position=position,
                before=tuple(scan.tokens[t] for t in before if t != NO_TOKEN),
                after=tuple(scan.tokens[t] for t in after if t != NO_TOKEN),
            )
        )
    return tuple(listed)

"""Read neurons from their weights: which tokens open the question, which tokens the answer promotes.

Promotes and suppresses are of the weights: on a prompt where the activation is negative the answer
is negated. Values of an answer are logits per unit of activation and of the final scale.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, ClassVar, overload

import torch
from jaxtyping import Float
from rich.cells import cell_len, set_cell_size
from torch import Tensor

from ffnprobe.arguments import NAMES, TOP, Option, verb
from ffnprobe.documents.blocks import Beside, Block, Figure, Table, Words
from ffnprobe.errors import NameNotUnderstood
from ffnprobe.layout import UNLIMITED, find_width, wrap
from ffnprobe.models.model import Model
from ffnprobe.names import FORMS, NeuronId, split_position
from ffnprobe.provenance import Provenance
from ffnprobe.reading.measures import (
    Measures,
    Thresholds,
    measure_neurons,
    project_measured,
    table_measures,
)
from ffnprobe.reading.projection import (
    TokenValue,
    answer_readers,
    check_top,
    list_sides,
    list_tokens,
    only_tokens,
    pick_directions,
    question_readers,
)
from ffnprobe.reading.searches import Related, find_related
from ffnprobe.results import Result, Tables

if TYPE_CHECKING:
    import pandas as pd

LISTED = 10  # tokens in a list that nobody asked the length of
Lists = Mapping[str, Sequence[TokenValue]]
ABOUT = (
    "A neuron asks a question about the text so far. The better the text matches it, the more of its answer it "
    "adds, which makes some next tokens likelier and others less likely."
)
TITLES = {
    "gate_tokens": "gate opens on",
    "question_tokens": "question opens on",
    "promotes": "answer promotes",
    "suppresses": "answer suppresses",
}


def write_card(
    measures: Measures, lists: Lists, *, width: int = UNLIMITED, has_lens: bool = False
) -> str:
    """Write a card that pastes as text: aligned columns, no colour, as many lists in a row as fit."""
    rows: list[list[list[str]]] = [[]]
    for side, listed in lists.items():
        widest = max(cell_len(token) for token, _, _ in listed)
        cells = [f"{set_cell_size(token, widest)}  {value:9.4f}" for token, _, value in listed]
        column = [TITLES[side], *cells]
        if rows[-1] and sum(map(_breadth, [*rows[-1], column])) + 3 * len(rows[-1]) > width:
            rows.append([])
        rows[-1].append(column)
    described = describe(measures, has_lens=has_lens)
    numbers = [line for text in described for line in wrap(text, width)]
    head = f"{measures.name}  {measures.kind}"
    return "\n".join([head, "", *map(_side_by_side, rows), *numbers])


def _side_by_side(columns: Sequence[Sequence[str]]) -> str:
    widths = [_breadth(column) for column in columns]
    lines = (
        "   ".join(map(set_cell_size, cells, widths)).rstrip()
        for cells in zip(*columns, strict=True)
    )
    return "\n".join([*lines, ""])


def _breadth(column: Sequence[str]) -> int:
    return max(map(cell_len, column))


def table_lists(lists: Lists) -> list[Table]:
    """Table a neuron's lists of tokens, each under what it is."""
    import pandas as pd

    return [
        Table(pd.DataFrame([(t, v) for t, _, v in row], columns=["token", "value"]), TITLES[side])
        for side, row in lists.items()
    ]


def describe(m: Measures, *, has_lens: bool = False) -> list[str]:
    """Write the numbers, and what the lists do not say; through a lens they say more."""
    lines = [
        f"question norm {m.question_norm:.3f}, bias {m.question_bias:.3f}; "
        f"answer norm {m.answer_norm:.3f}; cosine of the two {m.reads_writes:.3f}"
        + (f" ({m.role})" if m.role else "")
    ]
    if (g := m.gate_measures) is not None:
        lines.append(
            f"gate norm {g.norm:.3f}, bias {g.bias:.3f}; cosine of gate and question {g.cosine:.3f}, "
            f"of gate and answer {g.writes:.3f}; "
            "where the question scores below zero the answer is negated"
        )
    lines.append(
        f"over the vocabulary: mean {m.moments.mean:.4f}, variance {m.moments.variance:.3g}, "
        f"skew {m.moments.skew:.2f}, kurtosis {m.moments.kurtosis:.2f}; null space {m.null_space:.3f}"
    )
    if m.kind == "entropy":
        lines.append("the unembedding barely reads this answer: its token lists mean nothing")
    if m.layer > 0 and not has_lens:
        lines.append(
            "question tokens are a hint only: above layer 0 a question reads what other layers wrote"
        )
    return lines


@dataclass(frozen=True, eq=False, repr=False)
class QuestionSide:
    """What a neuron asks of the residual stream: a direction, and the tokens that open it."""

    model: Model
    direction: Float[Tensor, " d_model"]
    through: str
    # The direction as tokens are read off it: through the model's lens, if it has one.
    carried: Float[Tensor, " d_model"]

    def top(self, top: int | None = 10) -> "pd.DataFrame":
        """Table the `top` tokens that open the question most: token, id, value."""
        readers = question_readers(self.model, self.carried[None], through=self.through)
        table = _table_tokens(self.model, readers, top)
        return self.model.provenance(settings={"questions_through": self.through}).note(table)


@dataclass(frozen=True, eq=False, repr=False)
class AnswerSide:
    """What a neuron adds to the residual stream: a direction, and the tokens it moves."""

    model: Model
    direction: Float[Tensor, " d_model"]
    convention: str
    carried: Float[Tensor, " d_model"]

    def promotes(self, top: int | None = 10) -> "pd.DataFrame":
        """Table the `top` tokens the answer raises most: token, id, value."""
        return self._table(top, smallest=False)

    def suppresses(self, top: int | None = 10) -> "pd.DataFrame":
        """Table the `top` tokens the answer lowers most: token, id, value."""
        return self._table(top, smallest=True)

    def _table(self, top: int | None, *, smallest: bool) -> "pd.DataFrame":
        readers = answer_readers(self.model, self.carried[None], convention=self.convention)
        is_centred = self.convention == "centred"
        table = _table_tokens(self.model, readers, top, smallest=smallest, is_centred=is_centred)
        return self.model.provenance(convention=self.convention).note(table)


def _table_tokens(
    model: Model,
    readers: tuple[Tensor, Tensor],
    top: int | None,
    *,
    smallest: bool = False,
    is_centred: bool = False,
) -> "pd.DataFrame":
    """Table the tokens of one reader: token, id, value."""
    import pandas as pd

    k = check_top(top, model.config.vocab, of="tokens")
    (row,) = list_tokens(model, *readers, k, smallest=smallest, is_centred=is_centred)
    return pd.DataFrame(row, columns=["token", "id", "value"])


@dataclass(frozen=True, eq=False, repr=False)
class Reading(Result, Measures):
    """One neuron, read from the weights alone.

    >>> import ffnprobe as fp
    >>> neuron = fp.read(fp.load("pocket"), "L3N361")
    >>> neuron.answer.promotes(3).token.tolist()
    ['␣basketball', '␣boxing', '␣Oslo']
    """

    question: QuestionSide
    gate: QuestionSide | None
    answer: AnswerSide
    provenance: Provenance

    def __str__(self) -> str:
        return self.card(min(LISTED, self.question.model.config.vocab))

    @property
    def title(self) -> str:
        """Name the neuron and its kind."""
        return f"{self.name}, {self.kind}"

    @property
    def table(self) -> "pd.DataFrame":
        """The neuron as one row, with the columns of a survey."""
        return self._alone.table

    def document(self, tables: Tables = None, *, top: int = LISTED) -> Iterator[Block]:
        """Show the `top` tokens of each list side by side, and the numbers below."""
        yield Figure(self)
        yield Beside(table_lists(self._lists(min(top, self.question.model.config.vocab))))
        for line in describe(self, has_lens=self.has_lens):
            yield Words(line, "soft")
        yield from self.fold(tables)

    def tables(self, top: int | None = None) -> "dict[str, pd.DataFrame]":
        """Name the tables a file of this neuron holds: its numbers, and its tokens with values."""
        return self._alone.tables(top)

    @property
    def has_lens(self) -> bool:
        """Whether the lists are read through the layers between."""
        return self.question.model.lens is not None and self.question.through == "embed"

    @property
    def _alone(self) -> "Readings":
        return Readings(self.question.model, (self,), self.provenance)

    def related(self, top: int = 10) -> Related:
        """Find the neurons this one feeds, those that feed it, and those with a similar answer."""
        return find_related(self.question.model, self.name, top=top)

    def card(self, top: int = 10) -> str:
        """Write the neuron's card as text, as wide as the terminal, `top` tokens in each list."""
        lists = self._lists(top)
        return write_card(self, lists, width=find_width(), has_lens=self.has_lens)

    def _lists(self, k: int) -> dict[str, list[TokenValue]]:
        return {side: rows[0] for side, rows in self._alone._lists(k).items()}


@dataclass(frozen=True, eq=False, repr=False)
class Readings(Result, Sequence[Reading]):
    """Several neurons, in the order named.

    >>> import ffnprobe as fp
    >>> layer = fp.read(fp.load("pocket"), "L4")
    >>> len(layer), layer[26].name
    (768, 'L4N26')
    """

    in_terminal: ClassVar = ("rows",)

    model: Model
    readings: tuple[Reading, ...]
    provenance: Provenance

    def __len__(self) -> int:
        return len(self.readings)

    @overload
    def __getitem__(self, index: int) -> Reading: ...
    @overload
    def __getitem__(self, index: slice) -> "Readings": ...
    def __getitem__(self, index: int | slice) -> "Reading | Readings":
        if isinstance(index, slice):
            return Readings(self.model, self.readings[index], self.provenance)
        return self.readings[index]

    @property
    def title(self) -> str:
        """Say how many neurons of which model."""
        return f"{len(self)} neurons of {self.model.name}"

    @property
    def table(self) -> "pd.DataFrame":
        """The neurons with the columns of a survey, ten tokens in each list."""
        return self.rows(min(LISTED, self.model.config.vocab))

    def rows(self, top: int) -> "pd.DataFrame":
        """Table the neurons with the columns of a survey, `top` tokens in each list."""
        lists = {side: only_tokens(rows) for side, rows in self._lists(top).items()}
        return self.provenance.note(table_measures(self.readings, lists))

    def tokens(self, top: int = 5) -> "pd.DataFrame":
        """Table every token listed, one row each: name, layer, neuron, list, rank, token, id, value."""
        import pandas as pd

        rows = [
            (reading.name, reading.layer, reading.neuron, side, rank, *token)
            for side, lists in self._lists(top).items()
            for reading, tokens in zip(self, lists, strict=True)
            for rank, token in enumerate(tokens, start=1)
        ]
        columns = ["name", "layer", "neuron", "list", "rank", "token", "id", "value"]
        return self.provenance.note(pd.DataFrame(rows, columns=columns))

    def tables(
        self,
        top: Annotated[int | None, TOP.but("How many tokens in each list.", default="10")] = None,
    ) -> "dict[str, pd.DataFrame]":
        """Name the tables a file of these neurons holds: their numbers, their tokens with values."""
        k = min(LISTED, self.model.config.vocab) if top is None else top
        return {"rows": self.rows(k), "tokens": self.tokens(k)}

    def _lists(self, k: int) -> dict[str, list[list[TokenValue]]]:
        sides = {"question": [each.question.carried for each in self],
                 "gate": [each.gate.carried for each in self if each.gate is not None],
                 "answer": [each.answer.carried for each in self]}  # fmt: skip
        rows = {by: torch.stack(own) for by, own in sides.items() if own}
        convention, through = self[0].answer.convention, self[0].question.through
        return list_sides(self.model, rows, k, convention=convention, through=through)


@overload
def read(
    model: Model,
    neurons: list[str],
    *,
    convention: str = "centred",
    through: str = "embed",
    thresholds: Thresholds | None = None,
) -> Readings: ...
@overload
def read(
    model: Model,
    neurons: str,
    *,
    convention: str = "centred",
    through: str = "embed",
    thresholds: Thresholds | None = None,
) -> Reading | Readings: ...
@verb
def read(
    model: Model,
    neurons: Annotated[str | Sequence[str], NAMES],
    *,
    convention: Annotated[
        str,
        Option(
            "How answers are projected onto tokens.", choices=("centred", "gain", "raw", "normed")
        ),
    ] = "centred",
    through: Annotated[
        str, Option("The matrix questions are projected through.", choices=("embed", "unembed"))
    ] = "embed",
    thresholds: Thresholds | None = None,
) -> Reading | Readings:
    """Read neurons: the tokens that match a question, those an answer promotes and suppresses.

    Their weights are projected onto the vocabulary: of one ("L3N12"), or several ("L3-L5", a list). A text that names one neuron gives a `Reading`; anything else gives `Readings`. `convention`
    is how answers are projected onto tokens, `through` what questions are projected on; the
    moments and the kind are always those of cos(w_n, u_t).

    >>> import ffnprobe as fp
    >>> model = fp.load("pocket")
    >>> fp.read(model, "L3N361")
    Reading(L3N361, unlabelled)
    >>> fp.read(model, ["L4N26", "L3"])
    Readings(769 neurons of pocket)
    """
    texts = [neurons] if isinstance(neurons, str | NeuronId) else neurons
    # Weights are the same at every position, so one that a name carries says nothing here.
    chosen = model.find_neurons(split_position(str(text))[0] for text in texts)
    if not chosen:
        raise NameNotUnderstood("no neuron is named.", remedy=FORMS)
    limits = Thresholds() if thresholds is None else thresholds
    provenance = model.provenance(
        convention=convention, settings={"questions_through": through, "thresholds": asdict(limits)}
    )
    readings: list[Reading] = []
    with torch.no_grad():
        for layer, run in groupby(chosen, key=lambda name: name.layer):
            directions = pick_directions(model, layer, [name.neuron for name in run])
            answers = model.carry(layer, directions.answers, by="answer")
            blocks = project_measured(model, answers)
            moments = [one for _, block in blocks for one in block]
            measured = measure_neurons(model, directions, moments, limits)
            sides: dict[str, list[QuestionSide]] = {}
            for by, rows in (("question", directions.questions), ("gate", directions.gates)):
                if rows is not None:  # the lens ends at the embeddings
                    carried = model.carry(layer, rows, by=by) if through == "embed" else rows
                    pairs = zip(rows, carried, strict=True)
                    sides[by] = [QuestionSide(model, row, through, seen) for row, seen in pairs]
            for n, measures in enumerate(measured):
                readings.append(
                    Reading(
                        **vars(measures),
                        question=sides["question"][n],
                        gate=sides["gate"][n] if "gate" in sides else None,
                        answer=AnswerSide(model, directions.answers[n], convention, answers[n]),
                        provenance=provenance,
                    )
                )
    is_one = isinstance(neurons, str) and len(readings) == 1
    return readings[0] if is_one else Readings(model, tuple(readings), provenance)

"""Survey every neuron from the weights alone: one tidy row each.

Two matrix products with the vocabulary cannot be avoided, one for the questions (through the
token embeddings) and one for the answers (`centred`). They are made a few hundred neurons at a
time and used up at once, so that the products, 7.4 GB a side for GPT-2 small, never exist whole.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ffnprobe.errors import OptionRefused
from ffnprobe.models.model import Model
from ffnprobe.options import Progress
from ffnprobe.provenance import Provenance
from ffnprobe.reading.directions import pick_directions
from ffnprobe.reading.kinds import Thresholds
from ffnprobe.reading.measures import (
    Measures,
    measure_neurons,
    project_measured,
    table_measures,
)
from ffnprobe.reading.moments import Moments
from ffnprobe.reading.ordering import check_top, top_tokens
from ffnprobe.reading.projection import project_blocks, question_readers
from ffnprobe.results import Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class Survey(Result):
    """Every neuron surveyed: `table` has one row each.

    >>> import ffnprobe as fp
    >>> neurons = fp.survey(fp.load("pocket"), layers="4")
    >>> neurons
    Survey(768 neurons of pocket)
    >>> neurons.top(2).name.tolist()
    ['L4N129', 'L4N98']
    """

    table: "pd.DataFrame"
    provenance: Provenance

    def __len__(self) -> int:
        return len(self.table)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.table.itertuples(index=False))

    @property
    def title(self) -> str:
        """Say how many neurons of which model."""
        return f"{len(self):,} neurons of {self.provenance.model}"

    @property
    def layers(self) -> list[int]:
        """The layers surveyed."""
        return sorted(set(self.table.layer.tolist()))

    def tables(self) -> "dict[str, pd.DataFrame]":
        """Name the table: the neurons."""
        return {"neurons": self.table}

    def top(self, top: int | None = 10, *, by: str = "vocab_kurtosis") -> "pd.DataFrame":
        """Table the `top` neurons of largest value in a column, the most selective by default."""
        top = check_top(top, len(self), of="neurons surveyed")
        numbers = self.table.select_dtypes("number").columns
        if by not in numbers:
            raise OptionRefused(f'a survey has no numbers "{by}".', remedy=", ".join(numbers))
        return self.table.sort_values(by, ascending=False, kind="stable").head(top)

    def of_kind(self, kind: str) -> list[str]:
        """Name the neurons of one kind, or say which kinds there are."""
        names: list[str] = self.table.name[self.table.kind == kind].tolist()
        if not names:
            kinds = ", ".join(sorted(set(self.table.kind)))
            raise OptionRefused(f'no neuron surveyed is of the kind "{kind}".', remedy=kinds)
        return names


def survey_layers(
    model: Model,
    layers: Sequence[int],
    *,
    k: int,
    thresholds: Thresholds,
    progress: Progress | None = None,
) -> "pd.DataFrame":
    """Table every neuron of these layers, k tokens in each list."""
    check_top(k, model.config.vocab, of="tokens")
    measured: list[Measures] = []
    lists: dict[str, list[list[int]]] = {}
    with torch.no_grad():
        for layer in layers:
            found, ids = _survey_layer(model, layer, k, thresholds)
            measured += found
            if progress is not None:
                progress(len(measured), len(layers) * model.config.d_mlp)
            for column, rows in ids.items():
                lists.setdefault(column, []).extend(rows)
    shown = model.vocab.shown
    texts = {name: [[shown[i] for i in row] for row in rows] for name, rows in lists.items()}
    return table_measures(measured, texts)


def _survey_layer(
    model: Model, layer: int, k: int, thresholds: Thresholds
) -> tuple[list[Measures], dict[str, list[list[int]]]]:
    """Measure one layer's neurons and find the ids of the tokens that stand for them."""
    directions = pick_directions(model, layer, range(model.config.d_mlp))
    moments: list[Moments] = []
    promoted: list[Tensor] = []
    suppressed: list[Tensor] = []
    for dots, measured in project_measured(model, directions.answers):
        moments += measured
        promoted.append(top_tokens(dots, k)[1])
        suppressed.append(top_tokens(dots, k, smallest=True)[1])
    ids = (
        {}
        if directions.gates is None
        else {"gate_tokens": _list_openers(model, directions.gates, k)}
    )
    ids["question_tokens"] = _list_openers(model, directions.questions, k)
    ids |= {"promotes": promoted, "suppresses": suppressed}
    return (
        measure_neurons(model, directions, moments, thresholds),
        {name: torch.cat(blocks).tolist() for name, blocks in ids.items()},
    )


def _list_openers(model: Model, questions: Tensor, k: int) -> list[Tensor]:
    """Find the ids of the tokens that open each question (or gate) most."""
    readers = question_readers(model, questions, through="embed")
    return [top_tokens(dots, k)[1] for _, dots in project_blocks(*readers)]

"""Survey every neuron from the weights alone: one tidy row each.

Two matrix products with the vocabulary cannot be avoided, one for the questions (through the
token embeddings) and one for the answers (`centred`). They are made a few hundred neurons at a
time and used up at once, so that the products, 7.4 GB a side for GPT-2 small, never exist whole.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from ffnprobe.arguments import Progress
from ffnprobe.documents.blocks import Block, Figure, OnScreen, Section, Table, Terms, Words
from ffnprobe.errors import OptionRefused
from ffnprobe.models.model import Model
from ffnprobe.provenance import Provenance
from ffnprobe.reading.measures import (
    Measures,
    Moments,
    Thresholds,
    measure_neurons,
    project_measured,
    table_measures,
)
from ffnprobe.reading.projection import (
    check_top,
    pick_directions,
    project_blocks,
    question_readers,
    top_tokens,
)
from ffnprobe.reading.readings import ABOUT
from ffnprobe.results import Result, Tables

if TYPE_CHECKING:
    import pandas as pd

# A browser sorts this many rows quickly, and the page stays small enough to send.
ROWS = 5_000
COLUMNS = {
    "kind": "derived from the numbers: prediction (promotes a few tokens strongly), suppression (suppresses a few), entropy (writes where the unembedding barely reads), partition (pushes one large set of tokens against another), unlabelled",
    "promotes, suppresses": "the tokens the answer makes likelier and less likely, by the weights",
    "reads writes, role": "the cosine between question and answer: near 1 a neuron strengthens what it reads, near −1 it erases it, in between it translates",
    "vocab mean … kurtosis": "moments over all tokens of the cosine between the answer and the token; a normal distribution has kurtosis 3",
    "null space": "the share of the answer's norm that the unembedding barely reads",
}


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
    def heading(self) -> str:
        """What its page is called."""
        return f"The neurons of {self.provenance.model}"

    def document(self, tables: Tables = None) -> Iterator[Block]:
        """Show all neurons in figures, and in one table; of many only the most selective, and say so."""
        shown, layers, model = self, _spell(self.layers), self.provenance.model
        intro = f"Every neuron of {layers} of {model}, {len(self):,} in all, read from the weights alone."
        if len(self) > ROWS:
            shown = replace(self, table=self.top(ROWS).sort_index())
            intro = (
                f"{layers.capitalize()} of {model} have {len(self):,} neurons; this shows the {ROWS:,} whose "
                "answers are the most selective (largest kurtosis). All of them: save to .csv or .parquet, or "
                "survey a layer at a time."
            )
        yield OnScreen(lambda: [Words(intro), Words(ABOUT), Figure(shown)])
        yield Table(shown.table, "neurons", is_long=True)
        yield OnScreen(
            lambda: [Section("What the columns mean", lambda: [Terms(COLUMNS)], is_folded=True)]
        )

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


def _spell(layers: list[int]) -> str:
    if len(layers) == 1:
        return f"layer {layers[0]}"
    is_run = layers == list(range(layers[0], layers[-1] + 1))
    return f"layers {layers[0]}–{layers[-1]}" if is_run else f"layers {', '.join(map(str, layers))}"


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
    ids: dict[str, list[list[int]]] = defaultdict(list)
    with torch.no_grad():
        for layer in layers:
            directions = pick_directions(model, layer, range(model.config.d_mlp))
            asked = {"gate_tokens": directions.gates, "question_tokens": directions.questions}
            for side, rows in asked.items():
                if rows is not None:
                    carried = model.carry(layer, rows, by=side.removesuffix("_tokens"))
                    readers = question_readers(model, carried, through="embed")
                    for _, dots in project_blocks(*readers):
                        ids[side] += top_tokens(dots, k)[1].tolist()
            moments: list[Moments] = []
            answers = model.carry(layer, directions.answers, by="answer")
            for dots, block in project_measured(model, answers):
                moments += block
                ids["promotes"] += top_tokens(dots, k)[1].tolist()
                ids["suppresses"] += top_tokens(dots, k, smallest=True)[1].tolist()
            measured += measure_neurons(model, directions, moments, thresholds)
            if progress is not None:
                progress(len(measured), len(layers) * model.config.d_mlp)
    shown = model.vocab.shown
    texts = {side: [[shown[i] for i in row] for row in rows] for side, rows in ids.items()}
    return table_measures(measured, texts)

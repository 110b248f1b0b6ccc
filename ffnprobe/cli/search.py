"""`ffnprobe search TOKEN…`: which neurons promote tokens, by their weights."""

from dataclasses import replace
from enum import StrEnum
from typing import Annotated

import typer

from ffnprobe.cli.command import Common, command
from ffnprobe.cli.options import LayersOption, NeuronsOption, StoreOption, open_labels


class Rank(StrEnum):
    z = "z"
    cosine = "cosine"
    dot = "dot"


class Kind(StrEnum):
    ENTROPY = "entropy"
    PREDICTION = "prediction"
    SUPPRESSION = "suppression"
    PARTITION = "partition"  # lower case is a method of StrEnum
    UNLABELLED = "unlabelled"


class Side(StrEnum):
    answer = "answer"
    question = "question"
    gate = "gate"


@command
def search(
    common: Common,
    tokens: Annotated[
        list[str], typer.Argument(metavar="TOKEN…", help='Single tokens, such as " basketball".')
    ],
    rank: Annotated[
        Rank, typer.Option(help="What to rank by; dot and cosine put hub neurons first.")
    ] = Rank.z,
    away: Annotated[
        bool, typer.Option("--away", help="Find neurons that suppress the tokens.")
    ] = False,
    by: Annotated[
        Side, typer.Option(help="Search answers, questions, or the gates of gated neurons.")
    ] = Side.answer,
    top: NeuronsOption = 10,
    layers: LayersOption = None,
    kind: Annotated[
        Kind | None, typer.Option(help="Only neurons of this kind (runs a survey first).")
    ] = None,
    store: StoreOption = None,
) -> None:
    """Find the neurons that promote tokens; hub neurons are discounted.

    With a store that has labels, also each neuron's label; pocket has its own.
    """
    from ffnprobe.reading.rankings import search as search_neurons

    model, among = common.load(), None
    if kind is not None:
        from ffnprobe.corpora.surveying import survey

        among = survey(model, layers=layers, top=1).of_kind(kind.value)
    found = search_neurons(
        model, tokens, rank=rank.value, away=away, by=by.value, top=top, layers=layers, among=among
    )
    if (labels := open_labels(model, store)) is not None:
        found = replace(found, table=found.provenance.note(labels.join(found.table)))
    common.emit(found.tables(), found.provenance, title=found.title, result=found)

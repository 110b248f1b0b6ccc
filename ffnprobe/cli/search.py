"""`ffnprobe search TOKEN…`: which neurons push toward tokens."""

from enum import StrEnum
from typing import Annotated

import typer

from ffnprobe.cli.command import Common, command


class Rank(StrEnum):
    z = "z"
    cosine = "cosine"
    dot = "dot"


class Kind(StrEnum):
    ENTROPY = "entropy"
    PREDICTION = "prediction"
    SUPPRESSION = "suppression"
    PARTITION = "partition"  # a StrEnum already has a method by that name in small letters
    UNLABELLED = "unlabelled"


class Side(StrEnum):
    answer = "answer"
    question = "question"
    gate = "gate"


@command
def search(
    common: Common,
    tokens: Annotated[
        list[str], typer.Argument(metavar="TOKEN…", help='Each one token, such as " basketball".')
    ],
    rank: Annotated[
        Rank, typer.Option(help="What to rank by; by dot or cosine hub neurons come first.")
    ] = Rank.z,
    away: Annotated[
        bool, typer.Option("--away", help="Find neurons that push against the tokens.")
    ] = False,
    by: Annotated[
        Side, typer.Option(help="What to search; gates only where neurons have gates.")
    ] = Side.answer,
    top: Annotated[int, typer.Option("--top", "-k", help="How many neurons.")] = 10,
    layers: Annotated[
        str | None, typer.Option(metavar="LAYERS", help="Only these: 3, 3-5 or 0,3-5.")
    ] = None,
    kind: Annotated[
        Kind | None, typer.Option(help="Only neurons of this kind; surveys them first.")
    ] = None,
) -> None:
    """Find the neurons that push toward tokens, hub neurons discounted."""
    from ffnprobe.reading.rankings import search as search_neurons

    model, among = common.load(), None
    if kind is not None:
        from ffnprobe.corpora.surveying import survey

        among = survey(model, layers=layers, k=1).of_kind(kind.value)
    found = search_neurons(
        model, tokens, rank=rank.value, away=away, by=by.value, k=top, layers=layers, among=among
    )
    common.emit(found.tables(), found.provenance, title=found.title, result=found)

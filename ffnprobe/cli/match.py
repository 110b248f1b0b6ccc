"""`ffnprobe match OTHER`: which neurons have a twin in another model."""

from pathlib import Path
from typing import Annotated

import typer

from ffnprobe.cli.command import Common, command
from ffnprobe.cli.options import StoreOption, open_store, show_progress
from ffnprobe.errors import OptionRefused


@command
def match(
    common: Common,
    other: Annotated[
        str, typer.Argument(metavar="OTHER", help="The other model: a name, a folder or a file.")
    ],
    top: Annotated[int, typer.Option("--top", "-k", help="How many pairs to show.")] = 10,
    seed: Annotated[int, typer.Option(help="Seed for the random control.")] = 0,
    store: StoreOption = None,
    other_store: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The scan of the same texts by the other model."),
    ] = None,
) -> None:
    """Find neurons with the same answers in two models of one vocabulary, with a random control."""
    if (store is None) != (other_store is None):
        raise OptionRefused(
            "activations are compared between two scans; one is named.",
            remedy="--store DIR --other-store DIR",
        )
    model = common.load()
    from ffnprobe.corpora.matching import match as match_models
    from ffnprobe.models.loading import load

    counterpart = load(other, device=common.device.value)
    common.note(f"{counterpart.name} ({counterpart.source}, weights {counterpart.fingerprint[:8]})")
    opened = [open_store(model, store), open_store(counterpart, other_store)]
    scans = [each for each in opened if each is not None] or None
    with show_progress(common, "neurons") as progress:
        found = match_models(model, counterpart, top=top, seed=seed, scans=scans, progress=progress)
    common.emit(
        found.tables(), found.provenance, title=found.title, result=found, shown=("pairs", "layers")
    )

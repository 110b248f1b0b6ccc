"""`ffnprobe survey`: every neuron, one row each."""

from typing import Annotated

import typer

from ffnprobe.cli.command import Common, command
from ffnprobe.cli.options import (
    AddressOption,
    Engine,
    EngineOption,
    LayersOption,
    StoreOption,
    WorkersOption,
    open_store,
    show_progress,
)


@command
def survey(
    common: Common,
    layers: LayersOption = None,
    top: Annotated[int, typer.Option("--top", "-k", help="How many tokens in each list.")] = 5,
    store: StoreOption = None,
    engine: EngineOption = Engine.local,
    workers: WorkersOption = None,
    address: AddressOption = None,
) -> None:
    """List every neuron: its tokens, norms, moments and kind; with a store, its firing rate."""
    from ffnprobe.corpora.surveying import survey as survey_neurons

    model = common.load(has_own_threads=True)
    scanned = open_store(model, store)
    with show_progress(common, "survey") as progress:
        found = survey_neurons(
            model, layers=layers, top=top, engine=engine.value, workers=workers, address=address,
            scan=scanned, progress=progress,
        )  # fmt: skip
    common.emit(found.tables(), found.provenance, title=found.title, result=found, most=40)

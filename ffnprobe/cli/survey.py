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
from ffnprobe.errors import OptionRefused


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
    if engine is Engine.local and (workers, address) != (None, None):
        raise OptionRefused("--workers and --address need a cluster.", remedy="--engine ray")
    from ffnprobe.models.provenance import Provenance
    from ffnprobe.reading.surveys import survey as survey_neurons

    model = common.load()
    scanned = open_store(model, store)
    with show_progress(common, "survey") as progress:
        if engine is Engine.ray:
            from ffnprobe.corpora.layers import survey_on_ray

            neurons = survey_on_ray(
                model, layers=layers, k=top, workers=workers, address=address, progress=progress
            )
        else:
            neurons = survey_neurons(model, layers=layers, k=top, progress=progress)
    if scanned is not None:
        from ffnprobe.corpora.joins import join_survey

        neurons = join_survey(neurons, scanned)
    common.emit({"neurons": neurons}, Provenance(**neurons.attrs["provenance"]))

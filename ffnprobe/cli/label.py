"""`ffnprobe label [NEURON…] --store DIR`: what opens each neuron and what it says, with a score."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ffnprobe.cli.command import Common, command
from ffnprobe.cli.options import HooksOption, show_progress


@command
def label(
    common: Common,
    store: Annotated[
        Path,
        typer.Option(
            "--store", metavar="DIR", help="The scan to label with; labels are kept in it."
        ),
    ],
    neurons: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NEURON…",
            help="A neuron L3N12, a layer L3, a range L3N5-L3N9; all by default.",
        ),
    ] = None,
    share: Annotated[
        float, typer.Option(help="The share of a neuron's activations that count as strong.")
    ] = 0.01,
    least: Annotated[
        float, typer.Option(help="A neuron whose F1 is below this is unexplained.")
    ] = 0.3,
    hooks: HooksOption = False,
) -> None:
    """Label neurons by rules found on half of a scan's texts and scored on the other half.

    Labelling is resumable: run the same command again.
    """
    model = common.load(hooks=hooks)
    from ffnprobe.labels.labelling import label as label_neurons

    with show_progress(common, "label") as progress:
        try:
            found = label_neurons(
                model, store, neurons=neurons or None, share=share, least=least, progress=progress
            )
        except KeyboardInterrupt:
            print("interrupted: the same command resumes.", file=sys.stderr)
            raise typer.Exit(130) from None
    common.note(found.summary)
    shown = ("layers",) if neurons is None else ("neurons",)
    tables = found.tables()
    if neurons is not None and common.is_for_terminal:
        columns = ["name", "label", "f1", "lookup_f1", "output_gain", "output_gain_random"]
        tables["neurons"] = tables["neurons"][columns]
    common.emit(tables, found.provenance, title=found.title, result=found, shown=shown, most=40)

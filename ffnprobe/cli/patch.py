"""`ffnprobe patch SOURCE TARGET ANSWER OTHER`: carry activations from one prompt into another."""

from typing import Annotated

import typer

from ffnprobe.cli.command import Common, command
from ffnprobe.cli.options import (
    BosOption,
    HooksOption,
    NeuronsOption,
    read_positions,
    show_progress,
)


@command
def patch(
    common: Common,
    source: Annotated[str, typer.Argument(help="The prompt to take activations from.")],
    target: Annotated[
        str, typer.Argument(help="The prompt to put them into, with as many tokens.")
    ],
    answer: Annotated[str, typer.Argument(help='The source\'s answer: " basketball".')],
    other: Annotated[str, typer.Argument(help='The target\'s answer: " golf".')],
    position: Annotated[str, typer.Option(help="Positions to patch: -1, 3, 3,5 or all.")] = "all",
    neuron: Annotated[
        list[str] | None,
        typer.Option(help="Only these neurons: L3N12, L3, L3N5-L3N9 (repeatable)."),
    ] = None,
    layers: Annotated[
        bool, typer.Option("--map", help="Patch whole MLP layers, position by position.")
    ] = False,
    top: NeuronsOption = 10,
    bos: BosOption = None,
    hooks: HooksOption = False,
) -> None:
    """Put each neuron's activation from one prompt into another, and measure what it carries.

    0: the answer stays the target's; 1: it becomes the source's.
    """
    positions = read_positions(position)
    model = common.load(hooks=hooks)
    from ffnprobe.interventions import patching
    from ffnprobe.interventions.choices import choose_neurons
    from ffnprobe.tracing.running import run

    first, second = run(model, [source, target], bos=bos, patterns=False)
    if layers:
        with show_progress(common, "layers") as progress:
            whole = patching.patch_layers(first, second, answer, other, progress=progress)
        if common.is_for_terminal:
            from ffnprobe.views.terminal.explanations import lay_out_map
            from ffnprobe.views.terminal.printing import print_grid

            common.write(whole)
            shown = whole.table.rename(columns={"token_target": "token"})
            print_grid(whole.title, lay_out_map(shown, "carried"), note=whole.caption)
        else:
            common.emit(whole.tables(), whole.provenance, title=whole.title, result=whole)
        return
    with show_progress(common, "neurons") as progress:
        found = patching.patch(
            first, second, answer, other, neurons=neuron, position=positions, progress=progress
        )
    many = top if neuron is None else min(top, int(choose_neurons(model, neuron).sum()))
    tables = {"patches": found.top(many)}
    common.emit(tables, found.provenance, title=found.title, result=found)

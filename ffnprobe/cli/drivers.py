"""`ffnprobe drivers PROMPT NEURON`: what gave a neuron its score."""

from typing import Annotated

import typer

from ffnprobe.cli.command import Common, command
from ffnprobe.cli.options import BosOption, HooksOption, PromptArgument, read_prompt


@command
def drivers(
    common: Common,
    prompt: PromptArgument,
    neuron: Annotated[
        str, typer.Argument(help="The neuron, such as L3N12, or L3N12@2 at position 2.")
    ],
    position: Annotated[
        int | None,
        typer.Option(
            help="The position to look at; -1 is the last.", show_default="where it acts most"
        ),
    ] = None,
    top: Annotated[int, typer.Option("--top", "-k", help="How many rows in each table.")] = 10,
    bos: BosOption = None,
    hooks: HooksOption = False,
) -> None:
    """List what gave a neuron its score: heads and what they read, earlier neurons, embeddings."""
    text = read_prompt(prompt)
    model = common.load(hooks=hooks)
    from ffnprobe.tracing.running import run
    from ffnprobe.tracing.score_drivers import drivers as find_drivers

    found = find_drivers(run(model, text, bos=bos), neuron, position=position)
    tables = found.tables(top) | {"parts": found.table}
    if common.is_for_terminal:
        tables["parts"] = found.table.head(top)
    common.emit(tables, found.provenance, title=found.title, result=found)

"""`ffnprobe stages PROMPT --layer 3`: every token on its way through one MLP."""

from typing import Annotated

import typer

from ffnprobe.cli.command import Common, command
from ffnprobe.cli.options import BosOption, HooksOption, PromptArgument, read_prompt


@command
def stages(
    common: Common,
    prompt: PromptArgument,
    layer: Annotated[int, typer.Option("--layer", "-l", help="The layer, counted from 0.")] = 0,
    bos: BosOption = None,
    hooks: HooksOption = False,
) -> None:
    """List, for each token, the input, scores, activations and output of one MLP."""
    text = read_prompt(prompt)
    from ffnprobe.tracing.ffn_stages import stages as follow
    from ffnprobe.tracing.running import run

    found = follow(run(common.load(hooks=hooks), text, bos=bos), layer)
    common.note("an MLP treats each token on its own")
    common.emit(found.tables(), found.provenance, title=found.title, result=found)

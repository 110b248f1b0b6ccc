"""`ffnprobe stages PROMPT --layer 3`: every token's way through one FFN."""

from typing import Annotated

import typer

from ffnprobe.cli.command import BosOption, Common, command, read_prompt


@command
def stages(
    common: Common,
    prompt: Annotated[str, typer.Argument(help="The text; - reads it from standard input.")],
    layer: Annotated[int, typer.Option("--layer", "-l", help="Which FFN, counted from 0.")] = 0,
    bos: BosOption = None,
) -> None:
    """Table, for each token, one FFN's input, scores, activations and output."""
    text = read_prompt(prompt)
    from ffnprobe.tracing.ffn_stages import stages as follow
    from ffnprobe.tracing.running import run

    found = follow(run(common.load(), text, bos=bos), layer)
    common.note("before, output and after are norms; each token goes through the FFN alone")
    common.emit(found.tables(), found.provenance, title=found.title, result=found)

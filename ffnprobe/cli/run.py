"""`ffnprobe run PROMPT`: what the model says next."""

from typing import Annotated

import typer

from ffnprobe.cli.command import Common, command, read_prompt


@command
def run(
    common: Common,
    prompt: Annotated[str, typer.Argument(help="The text; - reads it from standard input.")],
    temperature: Annotated[float, typer.Option(help="Divide the logits by this.")] = 1.0,
    top: Annotated[int, typer.Option("--top", "-k", help="How many tokens.")] = 10,
    bos: Annotated[bool, typer.Option(help="Put <|endoftext|> in front.")] = True,
) -> None:
    """Run a prompt and table the next tokens."""
    text = read_prompt(prompt)
    from ffnprobe.tracing.trace import run as run_prompt

    trace = run_prompt(common.load(), text, bos=bos, patterns=False)
    common.emit(
        {"predictions": trace.predictions(top, temperature=temperature)},
        trace.provenance,
        title=f"next token after {' '.join(trace.tokens)}",
    )

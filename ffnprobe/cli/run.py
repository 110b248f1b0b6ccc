"""`ffnprobe run PROMPT`: what the model predicts next."""

from typing import TYPE_CHECKING, Annotated

import typer

from ffnprobe.cli.command import Common, command
from ffnprobe.cli.options import BosOption, HooksOption, PromptArgument, TokensOption, read_prompt

if TYPE_CHECKING:
    from ffnprobe.tracing.logit_lens import Lens
    from ffnprobe.tracing.trace import Trace


@command
def run(
    common: Common,
    prompt: PromptArgument,
    temperature: Annotated[float, typer.Option(help="Divide the logits by this number.")] = 1.0,
    top: TokensOption = 10,
    lens: Annotated[
        bool, typer.Option("--lens", help="Also show the logit lens after each attention and MLP.")
    ] = False,
    bos: BosOption = None,
    hooks: HooksOption = False,
) -> None:
    """Run a prompt and list the predicted next tokens."""
    text = read_prompt(prompt)
    from ffnprobe.tracing.running import run as run_prompt

    trace = run_prompt(common.load(hooks=hooks), text, bos=bos, patterns=False)
    tables = {"predictions": trace.predictions(top, temperature=temperature)}
    result: Trace | Lens = trace
    if lens:
        from ffnprobe.tracing.logit_lens import lens as read_lens

        result = read_lens(trace)
        tables["lens"] = result.table
        common.note(f"the lens follows the prediction, {tables['predictions'].token[0]}")
    provenance = trace.provenance
    if temperature != 1.0:
        provenance = provenance.including(temperature=temperature)
    title = f"next token after {' '.join(trace.tokens)}"
    common.emit(tables, provenance, title=title, result=result)

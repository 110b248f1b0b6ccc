"""`ffnprobe attribute PROMPT [ANSWER]`: which neurons pushed this word."""

import math
from typing import TYPE_CHECKING, Annotated

import typer

from ffnprobe.cli.answers import note_spelling
from ffnprobe.cli.command import (
    BosOption,
    Common,
    Convention,
    ConventionOption,
    command,
    read_prompt,
)

if TYPE_CHECKING:
    from ffnprobe.tracing.pushes import Pushes


@command
def attribute(
    common: Common,
    prompt: Annotated[str, typer.Argument(help="The text; - reads it from standard input.")],
    answer: Annotated[
        str | None,
        typer.Argument(
            help='What comes next, as written: " basketball".',
            show_default="the model's own prediction",
        ),
    ] = None,
    versus: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="Rather than this token.")
    ] = None,
    position: Annotated[int, typer.Option(help="Where it is predicted; -1 is the last.")] = -1,
    convention: ConventionOption = Convention.centred,
    top: Annotated[int, typer.Option("--top", "-k", help="How many neurons.")] = 10,
    bos: BosOption = None,
) -> None:
    """Table the neurons that pushed hardest toward an answer, in logits.

    As json and md, also each layer's pushes and each part's, which add up to the model's logit.
    """
    text = read_prompt(prompt)
    model = common.load()
    from ffnprobe.tracing.answers import predicted
    from ffnprobe.tracing.pushes import attribute as attribute_answer
    from ffnprobe.tracing.running import run

    trace = run(model, text, bos=bos, patterns=False)
    if answer is None:
        wanted: str | int = predicted(trace, position)
        common.note(f"no answer given: {model.vocab.show(int(wanted))} is the model's prediction")
    else:
        wanted = answer
    pushes = attribute_answer(
        trace, wanted, versus=versus, position=position, convention=convention.value
    )
    if answer is not None:
        note_spelling(common, model.vocab, answer)
    for piece in pushes.pieces:
        common.note(_describe(piece))
    if len(pushes.pieces) > 1:
        common.note(f"together: log-probability {pushes.log_probability:.3f}")
    tables = pushes.tables() | {"rows": pushes.top(top)}
    title = f"who pushed {pushes.provenance.answer}, in logits"
    common.emit(tables, pushes.provenance, title=title, result=pushes, shown=("rows",))


def _describe(piece: "Pushes") -> str:
    """Write one piece's figures, and how far the account is from closing."""
    shown = piece.provenance
    than = "" if shown.versus is None else f" above {shown.versus}"
    return (
        f"{shown.answer}: logit {piece.logit:.3f}{than}, "
        f"probability {math.exp(piece.log_probability):.4g}, rank {piece.rank}; "
        f"the parts add up to the model's logit within {abs(piece.remainder):.1e}"
    )

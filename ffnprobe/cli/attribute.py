"""`ffnprobe attribute PROMPT [ANSWER]`: direct logit attribution, neuron by neuron."""

import math
from typing import TYPE_CHECKING, Annotated

import typer

from ffnprobe.cli.command import Common, command
from ffnprobe.cli.options import (
    AnswerOrPrediction,
    BosOption,
    ContrastFromOption,
    ContrastOption,
    Convention,
    ConventionOption,
    HooksOption,
    NeuronsOption,
    PromptArgument,
    VersusOption,
    note_spelling,
    note_trailing_space,
    read_contrast,
    read_prompt,
)

if TYPE_CHECKING:
    from ffnprobe.tracing.pushes import Pushes


@command
def attribute(
    common: Common,
    prompt: PromptArgument,
    answer: AnswerOrPrediction = None,
    versus: VersusOption = None,
    position: Annotated[
        int, typer.Option(help="The position that predicts it; -1 is the last.")
    ] = -1,
    contrast: ContrastOption = None,
    contrast_from: ContrastFromOption = None,
    convention: ConventionOption = Convention.centred,
    top: NeuronsOption = 10,
    bos: BosOption = None,
    hooks: HooksOption = False,
) -> None:
    """List the neurons that pushed an answer most, in logits.

    json and md files also hold the pushes of each layer and part; they add up to the model's logit.
    """
    text = read_prompt(prompt)
    model = common.load(hooks=hooks)
    from ffnprobe.tracing.answers import predicted
    from ffnprobe.tracing.owners import describe_elsewhere
    from ffnprobe.tracing.pushes import attribute as attribute_answer
    from ffnprobe.tracing.running import run

    trace = run(model, text, bos=bos)
    if answer is None:
        wanted: str | int = predicted(trace, position)
        common.note(f"no answer given: taking the prediction, {model.vocab.show(int(wanted))}")
    else:
        wanted = answer
    told = model.vocab.text([wanted]) if isinstance(wanted, int) else wanted
    others = read_contrast(model, text, told, contrast, contrast_from)
    if others is not None:
        found = attribute_answer(
            trace, wanted, versus=versus, position=position, convention=convention.value,
            contrast=others,
        )  # fmt: skip
        common.note(found.contrast.caption)
        common.note(found.title)
        tables = found.tables() | {"rows": found.top(top)}
        title = f"who pushed {found.provenance.answer} more than on the contrast prompts, in logits"
        common.emit(tables, found.provenance, title=title, result=found, shown=("rows",))
        return
    pushes = attribute_answer(
        trace, wanted, versus=versus, position=position, convention=convention.value
    )
    if answer is not None:
        note_spelling(common, model.vocab, answer)
        note_trailing_space(common, model, text, answer, bos)
    if trace.has_bos and trace.at(position) == 0:
        common.note("position 0 is BOS: no word of the prompt is read there")
    for piece in pushes.pieces:
        common.note(_describe(piece))
    if len(pushes.pieces) > 1:
        common.note(f"together: log-probability {pushes.log_probability:.3f}")
    tables = pushes.tables() | {"rows": pushes.top(top)}
    known = pushes.provenance
    than = "" if known.versus is None else f" rather than {known.versus}"
    title = f"who pushed {known.answer}{than} at {trace.tokens[trace.at(position)]}, in logits"
    if len(pushes.pieces) == 1 and (elsewhere := describe_elsewhere(pushes.pieces[0])):
        title += f"; {elsewhere}"
    common.emit(tables, pushes.provenance, title=title, result=pushes, shown=("rows",))


def _describe(piece: "Pushes") -> str:
    """Write one token's logit and probability, and how well the parts add up."""
    shown = piece.provenance
    than = "" if shown.versus is None else f" above {shown.versus}"
    return (
        f"{shown.answer}: logit {piece.logit:.3f}{than}, "
        f"probability {math.exp(piece.log_probability):.4g}, rank {piece.rank}; "
        f"the parts add up to the model's logit within {abs(piece.remainder):.1e}"
    )

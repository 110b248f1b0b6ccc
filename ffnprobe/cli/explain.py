"""`ffnprobe explain PROMPT [ANSWER]`: the main job, why the model said it."""

from typing import Annotated

import typer

from ffnprobe.cli.answers import note_spelling
from ffnprobe.cli.command import (
    BosOption,
    Common,
    Convention,
    ConventionOption,
    ReplaceOption,
    command,
    read_prompt,
)
from ffnprobe.cli.progress import show_progress
from ffnprobe.cli.stores import StoreOption, open_store


@command
def explain(
    common: Common,
    prompt: Annotated[str, typer.Argument(help="The text; - reads it from standard input.")],
    answer: Annotated[
        str | None,
        typer.Argument(
            help='One token; include the leading space: " basketball". Default: the prediction.'
        ),
    ] = None,
    versus: Annotated[str | None, typer.Option(help="Why not this token?")] = None,
    top: Annotated[int, typer.Option("--top", "-k", help="How many neurons.")] = 10,
    replace: ReplaceOption = None,
    convention: ConventionOption = Convention.centred,
    store: StoreOption = None,
    effects: Annotated[
        bool, typer.Option(help="Measure what removing neurons does; without: faster.")
    ] = True,
    seed: Annotated[int, typer.Option(help="Draws the random neurons of the control.")] = 0,
    bos: BosOption = None,
) -> None:
    """Gather the evidence for an answer: weights, pushes, exact effects, graded."""
    text = read_prompt(prompt)
    model = common.load()
    from ffnprobe.evidence.explaining import explain as explain_answer

    if answer is not None and len(model.vocab.pieces(answer)) == 1:
        note_spelling(common, model.vocab, answer)
    with show_progress(common, "neurons") as progress:
        found = explain_answer(
            model, text, answer, versus=versus, top=top, effects=effects, seed=seed, bos=bos,
            replace=None if replace is None else replace.value, convention=convention.value,
            scan=open_store(model, store), progress=progress,
        )  # fmt: skip
    if answer is None:
        common.note(f"no answer given: explaining the prediction, {found.provenance.answer}")
    if common.is_for_terminal:
        from ffnprobe.views.stories import print_story

        common.write(found)
        print_story(found)
    else:
        common.emit(found.tables(), found.provenance, result=found)

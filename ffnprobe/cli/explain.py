"""`ffnprobe explain PROMPT [ANSWER]`: the main job, why the model said it."""

from typing import Annotated

import typer

from ffnprobe.cli.answers import note_spelling
from ffnprobe.cli.command import BosOption, Common, command, read_prompt
from ffnprobe.cli.progress import show_progress
from ffnprobe.cli.stores import StoreOption, open_store


@command
def explain(
    common: Common,
    prompt: Annotated[str, typer.Argument(help="The text; - reads it from standard input.")],
    answer: Annotated[
        str | None,
        typer.Argument(help='One token, mind its space: " basketball". Default: the prediction.'),
    ] = None,
    versus: Annotated[str | None, typer.Option(help="Why not this token?")] = None,
    top: Annotated[int, typer.Option("--top", "-k", help="How many neurons.")] = 10,
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
    from ffnprobe.evidence.stories import explain as explain_answer

    if answer is not None and len(model.vocab.pieces(answer)) == 1:
        note_spelling(common, model.vocab, answer)
    with show_progress(common, "neurons") as progress:
        explanation = explain_answer(
            model, text, answer, versus=versus, top=top, effects=effects, seed=seed, bos=bos,
            scan=open_store(model, store), progress=progress,
        )  # fmt: skip
    if answer is None:
        common.note(f"no answer given: explaining the prediction, {explanation.provenance.answer}")
    if common.is_for_terminal:
        from ffnprobe.views.terminal.explanations import print_explanation

        common.write(explanation)
        print_explanation(explanation)
    else:
        common.emit(explanation.tables(), explanation.provenance, result=explanation)

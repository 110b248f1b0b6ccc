"""`ffnprobe explain PROMPT [ANSWER]`: why the model predicts an answer."""

from typing import Annotated

import typer

from ffnprobe.cli.command import Common, command
from ffnprobe.cli.options import (
    AnswerOrPrediction,
    BosOption,
    ContrastFromOption,
    Convention,
    ConventionOption,
    HooksOption,
    PromptArgument,
    ReplaceOption,
    StoreOption,
    SubjectOption,
    VersusOption,
    note_spelling,
    note_trailing_space,
    open_store,
    read_contrast,
    read_prompt,
    show_progress,
    tell_answer,
)


@command
def explain(
    common: Common,
    prompt: PromptArgument,
    answer: AnswerOrPrediction = None,
    versus: VersusOption = None,
    contrast: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="The same sentence about another subject (repeatable), if others than those found; none: no comparison.",
        ),
    ] = None,
    contrast_from: ContrastFromOption = None,
    top: Annotated[
        int,
        typer.Option(
            "--top",
            "-k",
            help="How many neurons to list.",
        ),
    ] = 10,
    replace: ReplaceOption = None,
    convention: ConventionOption = Convention.centred,
    store: StoreOption = None,
    effects: Annotated[bool, typer.Option(help="Measure ablation effects; faster without.")] = True,
    subject: SubjectOption = None,
    full: Annotated[
        bool, typer.Option("--full", help="Also print the map, paths, parts, curve, every column.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed for the random control neurons.")] = 0,
    bos: BosOption = None,
    hooks: HooksOption = False,
) -> None:
    """Find the few neurons that carry an answer, with graded evidence for each of them."""
    text = read_prompt(prompt)
    model = common.load(hooks=hooks)
    from ffnprobe.evidence.explaining import explain as explain_answer

    if answer is not None:
        note_spelling(common, model.vocab, answer)
        note_trailing_space(common, model, text, answer, bos)
    told = tell_answer(model, text, answer, bos) if contrast_from is not None else answer
    others = read_contrast(model, text, told or "", contrast, contrast_from)
    scan = open_store(model, store)
    with show_progress(common, "explaining") as progress:
        explanation = explain_answer(
            model, text, answer, versus=versus, top=top, effects=effects, seed=seed, bos=bos,
            contrast=others, subject=subject, replace=None if replace is None else replace.value,
            convention=convention.value, scan=scan, progress=progress,
        )  # fmt: skip
    if answer is None:
        common.note(f"no answer given: explaining the prediction, {explanation.provenance.answer}")
    if not common.is_for_terminal:
        common.emit(explanation.tables(), explanation.provenance, result=explanation)
        return
    from ffnprobe.views.terminal.explanations import print_explanation

    print_explanation(explanation, full=full)
    if len(explanation.pushes.pieces) > 1 and not full:
        common.note("numbers are added up over the answer's tokens; --full prints each one's")
    common.write(explanation)

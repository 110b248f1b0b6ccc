"""`ffnprobe explain PROMPT [ANSWER]`: why the model predicts an answer."""

from typing import Annotated

import typer

from ffnprobe.cli.command import Common, command
from ffnprobe.cli.options import (
    BosOption,
    ContrastFromOption,
    ContrastOption,
    Convention,
    ConventionOption,
    NeuronsOption,
    PromptArgument,
    ReplaceOption,
    StoreOption,
    note_spelling,
    open_store,
    read_contrast,
    read_prompt,
    show_progress,
)


@command
def explain(
    common: Common,
    prompt: PromptArgument,
    answer: Annotated[
        str | None,
        typer.Argument(
            help='The next text, with its leading space: " basketball".',
            show_default="the model's prediction",
        ),
    ] = None,
    versus: Annotated[
        str | None, typer.Option(help="Explain the answer against this token.")
    ] = None,
    contrast: ContrastOption = None,
    contrast_from: ContrastFromOption = None,
    top: NeuronsOption = 10,
    replace: ReplaceOption = None,
    convention: ConventionOption = Convention.centred,
    store: StoreOption = None,
    effects: Annotated[bool, typer.Option(help="Measure ablation effects; faster without.")] = True,
    seed: Annotated[int, typer.Option(help="Seed for the random control neurons.")] = 0,
    bos: BosOption = None,
) -> None:
    """Gather graded evidence for an answer: weights, pushes, exact ablation effects."""
    text = read_prompt(prompt)
    model = common.load()
    from ffnprobe.evidence.explaining import explain as explain_answer

    if answer is not None:
        note_spelling(common, model.vocab, answer)
    told = answer
    if told is None and contrast_from is not None:
        from ffnprobe.tracing.answers import predicted
        from ffnprobe.tracing.running import run

        told = model.vocab.text([predicted(run(model, text, bos=bos, patterns=False))])
    others = read_contrast(model, text, told or "", contrast, contrast_from)
    with show_progress(common, "neurons") as progress:
        explanation = explain_answer(
            model, text, answer, versus=versus, top=top, effects=effects, seed=seed, bos=bos,
            contrast=others,
            replace=None if replace is None else replace.value, convention=convention.value,
            scan=open_store(model, store), progress=progress,
        )  # fmt: skip
    if answer is None:
        common.note(f"no answer given: explaining the prediction, {explanation.provenance.answer}")
    if others is None and model.name == "pocket":
        common.note("--contrast-from pocket asks what is owed to the subject, not to the sentence")
    if common.is_for_terminal:
        from ffnprobe.views.terminal.explanations import print_explanation

        common.write(explanation)
        print_explanation(explanation)
    else:
        common.emit(explanation.tables(), explanation.provenance, result=explanation)

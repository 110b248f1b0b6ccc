"""`ffnprobe explain PROMPT [ANSWER]`: why the model predicts an answer."""

from collections.abc import Iterator
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
    PromptArgument,
    ReplaceOption,
    StoreOption,
    VersusOption,
    note_spelling,
    note_trailing_space,
    open_store,
    read_contrast,
    read_prompt,
    tell_answer,
    watch,
)

if TYPE_CHECKING:
    from ffnprobe.evidence.explanation import Explanation
    from ffnprobe.interventions.batches import Progress


@command
def explain(
    common: Common,
    prompt: PromptArgument,
    answer: AnswerOrPrediction = None,
    versus: VersusOption = None,
    contrast: ContrastOption = None,
    contrast_from: ContrastFromOption = None,
    top: Annotated[
        int,
        typer.Option(
            "--top",
            "-k",
            help="How many neurons to list at the last token, and how many before it.",
        ),
    ] = 10,
    replace: ReplaceOption = None,
    convention: ConventionOption = Convention.centred,
    store: StoreOption = None,
    effects: Annotated[bool, typer.Option(help="Measure ablation effects; faster without.")] = True,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="Ablate every neuron, not only those the gradient proposes, and layers everywhere.",
        ),
    ] = False,
    pieces: Annotated[
        bool,
        typer.Option(
            "--pieces", help="Of an answer of several tokens, also print each token's own numbers."
        ),
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed for the random control neurons.")] = 0,
    bos: BosOption = None,
    hooks: HooksOption = False,
) -> None:
    """Gather graded evidence for an answer: weights, pushes, exact ablation effects."""
    text = read_prompt(prompt)
    model = common.load(hooks=hooks)
    from ffnprobe.evidence.explaining import explain_stepwise

    if answer is not None:
        note_spelling(common, model.vocab, answer)
        note_trailing_space(common, model, text, answer, bos)
    told = tell_answer(model, text, answer, bos) if contrast_from is not None else answer
    others = read_contrast(model, text, told or "", contrast, contrast_from)
    scan = open_store(model, store)

    def start(progress: "Progress") -> "Iterator[Explanation]":
        return explain_stepwise(
            model, text, answer, versus=versus, top=top, effects=effects, exact=exact, seed=seed,
            bos=bos, contrast=others, replace=None if replace is None else replace.value,
            convention=convention.value, scan=scan, progress=progress,
        )  # fmt: skip

    steps = watch(common, "neurons", start)
    if common.is_for_terminal:
        from ffnprobe.views.terminal.explanations import print_as_known

        explanation = print_as_known(steps, with_pieces=pieces)
        common.write(explanation)
    else:
        *_, explanation = steps
    if answer is None:
        common.note(f"no answer given: explaining the prediction, {explanation.provenance.answer}")
    if explanation.pieces is not None and common.is_for_terminal and not pieces:
        common.note(
            "numbers are added up over the answer's tokens; --pieces also prints each one's"
        )
    if others is None and model.name == "pocket":
        common.note("--contrast-from pocket shows what depends on the subject, not on the sentence")
    if explanation.coverage is not None:
        more = "" if exact else "; --exact removes every neuron at the last position"
        common.note(f"{explanation.coverage.describe()}{more}")
    if not common.is_for_terminal:
        common.emit(explanation.tables(), explanation.provenance, result=explanation)

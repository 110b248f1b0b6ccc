"""`ffnprobe paths PROMPT ANSWER`: who owns what attention pushed toward this word."""

from typing import Annotated

import typer

from ffnprobe.cli.command import Common, command
from ffnprobe.cli.options import (
    AnswerArgument,
    BosOption,
    Convention,
    ConventionOption,
    HooksOption,
    PromptArgument,
    VersusOption,
    note_spelling,
    note_trailing_space,
    read_prompt,
)


@command
def paths(
    common: Common,
    prompt: PromptArgument,
    answer: AnswerArgument,
    versus: VersusOption = None,
    position: Annotated[
        int, typer.Option(help="The position that predicts it; -1 is the last.")
    ] = -1,
    depth: Annotated[
        int | None,
        typer.Option(
            help="1 splits heads; 2 also splits the heads that they read.", show_default="all"
        ),
    ] = None,
    convention: ConventionOption = Convention.centred,
    top: Annotated[int, typer.Option("--top", "-k", help="How many parts to show.")] = 10,
    bos: BosOption = None,
    hooks: HooksOption = False,
) -> None:
    """List the neurons and embeddings that pushed an answer most through attention, in logits.

    json and md files also hold the pushes of each head and position; they add up. For an answer of
    several tokens the pushes are added up over its pieces; json and md files hold each piece's own.
    """
    text = read_prompt(prompt)
    model = common.load(hooks=hooks)
    from ffnprobe.tracing.paths import paths as find_paths
    from ffnprobe.tracing.running import run

    trace = run(model, text, bos=bos)
    found = find_paths(
        trace,
        answer,
        versus=versus,
        position=position,
        depth=depth,
        convention=convention.value,
    )
    note_spelling(common, model.vocab, answer)
    note_trailing_space(common, model, text, answer, bos)
    common.note(
        f"{found.provenance.answer}: logit {found.logit:.3f}, "
        f"{found.push:+.3f} of it through heads; each head's shares add up to its push within "
        f"{found.remainder:.1e}"
    )
    tables = found.tables() | {"rows": found.top(top), "neurons": found.by_neuron(top)}
    if "pieces" in tables:
        tables["pieces"] = found.by_piece(top)
    title = f"who pushed {found.provenance.answer} through attention, in logits"
    common.emit(tables, found.provenance, title=title, result=found, shown=("rows", "positions"))

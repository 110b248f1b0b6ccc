"""`ffnprobe circuit PROMPT [ANSWER]`: the neurons between the words and the answer, as a graph."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

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
    VersusOption,
    note_spelling,
    note_trailing_space,
    read_contrast,
    read_prompt,
    tell_answer,
)


class Sign(StrEnum):
    both = "both"
    toward = "toward"


class Rule(StrEnum):
    rescale = "rescale"
    relp = "relp"
    gradient = "gradient"


@command
def circuit(
    common: Common,
    prompt: PromptArgument,
    answer: AnswerOrPrediction = None,
    versus: VersusOption = None,
    contrast: ContrastOption = None,
    contrast_from: ContrastFromOption = None,
    keep: Annotated[
        int, typer.Option(help="How many neurons to keep, each at one position.")
    ] = 100,
    sign: Annotated[
        Sign, typer.Option(help="Keep neurons that push either way, or only toward the answer.")
    ] = Sign.both,
    rule: Annotated[
        Rule | None,
        typer.Option(
            help="How a change of the score is passed on to the activation.",
            show_default="rescale with contrast prompts, else relp",
        ),
    ] = None,
    test: Annotated[
        bool, typer.Option("--test", help="Replay the model with only the circuit, and without it.")
    ] = False,
    graph: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Also write the graph: .graphml, or .json for circuit-tracer."
        ),
    ] = None,
    replace: ReplaceOption = None,
    convention: ConventionOption = Convention.centred,
    seed: Annotated[int, typer.Option(help="Seed for the random circuits of --test.")] = 0,
    top: Annotated[
        int, typer.Option("--top", "-k", help="How many neurons and edges to show.")
    ] = 10,
    bos: BosOption = None,
    hooks: HooksOption = False,
) -> None:
    """Find the neurons behind an answer and what each added to the next; every node adds up."""
    text = read_prompt(prompt)
    if graph is not None:
        from ffnprobe.views.files.graphs import check_graph

        check_graph(graph)
    model = common.load(hooks=hooks)
    from ffnprobe.circuits.circuit import circuit as find_circuit

    if answer is not None:
        note_spelling(common, model.vocab, answer)
        note_trailing_space(common, model, text, answer, bos)
    told = tell_answer(model, text, answer, bos) if contrast_from is not None else answer
    found = find_circuit(
        model, text, answer, versus=versus, keep=keep, sign=sign.value, bos=bos, seed=seed,
        contrast=read_contrast(model, text, told or "", contrast, contrast_from),
        rule=None if rule is None else rule.value, convention=convention.value, tested=test,
        replace=None if replace is None else replace.value,
    )  # fmt: skip
    scores = len(found.targets)
    common.note(
        f"{found.provenance.answer}: logit {found.logit:.3f}; {len(found.kept)} neurons kept; "
        f"{scores} scores add up within {found.remainder:.1e}"
    )
    if graph is not None:
        from ffnprobe.views.files.graphs import save_graph

        save_graph(found, graph)
        common.note(f"wrote {graph}")
    tables = found.tables()
    if common.is_for_terminal:
        tables |= {name: tables[name].head(top) for name in ("neurons", "edges")}
    shown = ("neurons", "edges", *(name for name in tables if name == "recovery_summary"))
    title = f"{found.title}, influence in logits"
    common.emit(tables, found.provenance, title=title, result=found, shown=shown)

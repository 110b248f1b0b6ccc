"""`ffnprobe score FACTS`: which facts are known, and which neurons push them."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ffnprobe.cli.command import Common, command
from ffnprobe.cli.options import BosOption, HooksOption, show_progress

if TYPE_CHECKING:
    from ffnprobe.facts.scores import Scores

# Enough rows for a terminal; files and --format csv, json and md hold all of them.
ROWS = 40
PROBLEMS = 20


class Templates(StrEnum):
    first = "first"
    all = "all"


@command
def score(
    common: Common,
    facts: Annotated[
        str,
        typer.Argument(
            metavar="FACTS",
            help="pocket, a .csv, .tsv, .json (LRE, ROME, CounterFact), .jsonl (LAMA, ParaRel), or a folder.",
        ),
    ],
    templates: Annotated[
        Templates, typer.Option(help="Ask each fact in its first template, or in all.")
    ] = Templates.first,
    top: Annotated[int, typer.Option("--top", "-k", help="How many neurons for each fact.")] = 10,
    effects: Annotated[
        bool,
        typer.Option(
            "--effects", help="Also rank by exact effect; slow, since every neuron is ablated."
        ),
    ] = False,
    by_relation: Annotated[
        bool,
        typer.Option(
            "--by-relation", help="Summarise each relation, with the neurons specific to it."
        ),
    ] = False,
    overlap: Annotated[
        bool, typer.Option("--overlap", help="Measure whether facts of one relation share neurons.")
    ] = False,
    remove: Annotated[
        str | None,
        typer.Option(metavar="RELATION", help="Ablate the neurons of this relation together."),
    ] = None,
    hubs: Annotated[bool, typer.Option(help="Include hub neurons, which push every fact.")] = False,
    seed: Annotated[int, typer.Option(help="Seed for shuffled relations and random neurons.")] = 0,
    bos: BosOption = None,
    hooks: HooksOption = False,
) -> None:
    """Score a table of facts: rank, probability, whether it is known, and the neurons that push it."""
    if sum((by_relation, overlap, remove is not None)) > 1:
        raise typer.BadParameter("one of --by-relation, --overlap and --remove")
    model = common.load(hooks=hooks)
    from ffnprobe.facts.partials import clear_partials
    from ffnprobe.facts.scoring import score as score_facts

    partial = None if common.out is None else Path(f"{common.out}.partial")
    if partial is not None and partial.exists():
        common.note(f"resuming from {partial}")
    try:
        with show_progress(common, "facts") as progress:
            scores = score_facts(
                model, facts, templates=templates.value, top=top, effects=effects, bos=bos,
                partial=partial, progress=progress,
            )  # fmt: skip
    except KeyboardInterrupt:
        if partial is None or not partial.exists():
            raise
        raise KeyboardInterrupt(
            f"what is done is kept in {partial}; the same command resumes."
        ) from None
    _note(common, scores)
    if not len(scores):
        common.emit({"problems": scores.problems}, scores.provenance, title="problems")
    elif by_relation:
        found = scores.by_relation(hubs=hubs, seed=seed)
        common.emit(found.tables(), found.provenance, result=found, most=40)
    elif overlap:
        compared = scores.overlap(hubs=hubs, seed=seed)
        common.emit(compared.tables(), compared.provenance, result=compared)
    elif remove is not None:
        removed = scores.specificity(remove, top, seed=seed)
        common.emit(removed.tables(), removed.provenance, title=removed.title, result=removed)
    elif common.is_for_terminal:
        common.write(scores)
        _print(common, scores)
    else:
        common.emit(scores.tables(), scores.provenance, result=scores)
    if partial is not None:
        clear_partials(partial)
    if len(scores.problems):
        raise typer.Exit(1)


def _note(common: Common, scores: "Scores") -> None:
    """Note what was scored, what stands out, and what could not be scored."""
    common.note(scores.title)
    hubs = scores.hubs() if len(scores) else []
    if hubs:
        common.note(f"hub neurons, which push every kind of fact: {' '.join(hubs)}")
    several = int((scores.table.pieces > 1).sum())
    if several:
        common.note(
            f"answers of several tokens ({several:,}): their rank is the worst piece's (1: every piece is "
            "first), their logits, log-probabilities and shares are over all pieces together"
        )
    bare = [r for r in scores.rows if not r.answer.startswith(" ") and not r.prompt.endswith(" ")]
    if bare:
        common.note(
            f"answers without a leading space are taken as written ({len(bare):,}): "
            f'"{bare[0].answer}", not " {bare[0].answer}"'
        )
    problems = scores.problems
    for row in problems.head(PROBLEMS).itertuples():
        print(f"{row.where}: {row.problem}", file=sys.stderr)
    if len(problems) > PROBLEMS:
        print(f"… and {len(problems) - PROBLEMS:,} more like these", file=sys.stderr)
    if len(problems):
        total = len(scores) + len(problems)
        print(f"error: {len(problems):,} of {total:,} rows were left out.", file=sys.stderr)


def _print(common: Common, scores: "Scores") -> None:
    """Print what fits a terminal: the first rows and the main columns."""
    from ffnprobe.views.terminal.printing import print_tables

    if len(scores) > ROWS:
        common.note(f"the first {ROWS} of {len(scores):,} facts; all with --out or --format csv")
    left_out = ["subject", "pieces", "log_probability", "mlp", "attention", "where"]
    shown = {"facts": scores.table.head(ROWS).drop(columns=left_out)}
    print_tables(shown, title=scores.title, note=scores.caption)

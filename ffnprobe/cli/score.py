"""`ffnprobe score FACTS`: which facts are known, and which neurons push them."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ffnprobe.cli.command import Common
from ffnprobe.cli.terminal import show_progress
from ffnprobe.cli.verbs import by_hand
from ffnprobe.options import BY_RELATION, HOOKS, HUBS, OVERLAP, REMOVE, Seed

if TYPE_CHECKING:
    from ffnprobe.facts.scores import Scores

PROBLEMS = 20
# Columns that a terminal has no room for.
LEFT_OUT = ["subject", "pieces", "log_probability", "mlp", "attention", "where"]


@by_hand
def score(
    common: Common,
    by_relation: Annotated[bool, BY_RELATION] = False,
    overlap: Annotated[bool, OVERLAP] = False,
    remove: Annotated[str | None, REMOVE] = None,
    hubs: Annotated[bool, HUBS] = False,
    seed: Seed = 0,
    hooks: Annotated[bool, HOOKS] = False,
    **given: Any,
) -> None:
    """Score a table of facts: rank, probability, whether it is known, and the neurons that push it."""
    if sum((by_relation, overlap, remove is not None)) > 1:
        raise typer.BadParameter("one of --by-relation, --overlap and --remove")
    model = common.load(hooks=hooks)
    from ffnprobe.facts.scores import score as score_facts
    from ffnprobe.store import discard

    partial = None if common.out is None else Path(f"{common.out}.partial")
    if partial is not None and partial.exists():
        common.note(f"resuming from {partial}")
    try:
        with show_progress(common, "facts") as progress:
            scores = score_facts(model, store=partial, progress=progress, **given)
    except KeyboardInterrupt:
        if partial is None or not partial.exists():
            raise
        raise KeyboardInterrupt(
            f"what is done is kept in {partial}; the same command resumes."
        ) from None
    _note(common, scores)
    if not len(scores):
        common.emit(scores, {"problems": scores.problems})
    elif by_relation:
        common.emit(scores.by_relation(hubs=hubs, seed=seed))
    elif overlap:
        common.emit(scores.overlap(hubs=hubs, seed=seed))
    elif remove is not None:
        common.emit(scores.specificity(remove, given["top"], seed=seed))
    else:
        common.emit(scores, printed={"facts": scores.table.drop(columns=LEFT_OUT)})
    if partial is not None:
        discard(partial)
    if len(scores.problems):
        raise typer.Exit(1)


def _note(common: Common, scores: "Scores") -> None:
    """Note what was scored, what stands out, and what could not be scored."""
    common.note(scores.title)
    for note in scores.notes:
        common.note(note)
    problems = scores.problems
    for row in problems.head(PROBLEMS).itertuples():
        print(f"{row.where}: {row.problem}", file=sys.stderr)
    if len(problems) > PROBLEMS:
        print(f"… and {len(problems) - PROBLEMS:,} more like these", file=sys.stderr)
    if len(problems):
        total = len(scores) + len(problems)
        print(f"error: {len(problems):,} of {total:,} rows were left out.", file=sys.stderr)

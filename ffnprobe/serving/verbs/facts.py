"""Tools that ask about many facts: score."""

from typing import Annotated, Literal

from pydantic import Field

from ffnprobe.errors import OptionRefused
from ffnprobe.facts.scoring import score as score_facts
from ffnprobe.results import Result
from ffnprobe.serving.answers import Found
from ffnprobe.serving.arguments import Bos, Facts, Seed, Top, read_facts
from ffnprobe.serving.table import Call, tool


@tool(
    grade="recall is a measurement; neurons are by push only, unless effects were asked for",
    has_progress=True,
)
def score(
    call: Call,
    facts: Facts,
    templates: Annotated[
        Literal["first", "all"], Field(description="Ask in the first template, or in all.")
    ] = "first",
    top: Top = 10,
    effects: Annotated[
        bool, Field(description="Also rank by exact effect; slow, every neuron is ablated.")
    ] = False,
    by_relation: Annotated[
        bool, Field(description="Summarise each relation, with the neurons specific to it.")
    ] = False,
    overlap: Annotated[
        bool, Field(description="Measure whether facts of one relation share neurons.")
    ] = False,
    remove: Annotated[
        str | None, Field(description="Ablate the neurons of this relation together.")
    ] = None,
    hubs: Annotated[bool, Field(description="Include hub neurons, which push every fact.")] = False,
    seed: Seed = 0,
    bos: Bos = None,
) -> Result | Found:
    """Score facts: rank, probability, whether each is known, and the neurons that push it."""
    if sum((by_relation, overlap, remove is not None)) > 1:
        raise OptionRefused("one of by_relation, overlap and remove.")
    scores = score_facts(
        call.model, read_facts(call, facts), templates=templates, top=top, effects=effects, bos=bos,
        progress=call.budget.count,
    )  # fmt: skip
    if len(scores.problems):
        call.note(f"{len(scores.problems):,} rows were left out; the table problems says why")
    if not len(scores):
        return Found(scores, {"problems": scores.problems})
    if by_relation:
        return scores.by_relation(hubs=hubs, seed=seed)
    if overlap:
        return scores.overlap(hubs=hubs, seed=seed)
    if remove is not None:
        return scores.specificity(remove, top, seed=seed)
    return scores

"""The tool that finds a circuit: from the words, through neurons, to the answer."""

from typing import Annotated, Literal

from pydantic import Field

from ffnprobe.circuits.circuit import circuit as find_circuit
from ffnprobe.results import Result
from ffnprobe.serving.arguments import (
    AnswerOrPrediction,
    Bos,
    Contrast,
    ContrastFrom,
    Convention,
    Prompt,
    Replace,
    Seed,
    Versus,
    note_spelling,
    read_contrast_of,
)
from ffnprobe.serving.table import Call, tool

MOST_KEPT = 1000


@tool(
    grade="influence: a first-order account with attention patterns and scales held; test=true replays it"
)
def circuit(
    call: Call,
    prompt: Prompt,
    answer: AnswerOrPrediction = None,
    versus: Versus = None,
    contrast: Contrast = None,
    contrast_from: ContrastFrom = None,
    keep: Annotated[
        int, Field(ge=1, le=MOST_KEPT, description="How many neurons at positions to keep.")
    ] = 100,
    sign: Annotated[
        Literal["both", "toward"],
        Field(description="Keep neurons whatever way they go, or only toward the answer."),
    ] = "both",
    rule: Annotated[
        Literal["rescale", "relp", "gradient"] | None,
        Field(description="How an activation follows its score; rescale with contrast, else relp."),
    ] = None,
    test: Annotated[
        bool, Field(description="Replay the model with only the circuit, and without it.")
    ] = False,
    replace: Replace = None,
    convention: Convention = "centred",
    seed: Seed = 0,
    bos: Bos = None,
) -> Result:
    """Find the neurons behind an answer and what each added to the next; every node adds up."""
    if answer is not None:
        note_spelling(call, answer)
    found = find_circuit(
        call.model, prompt, answer, versus=versus, keep=keep, sign=sign, rule=rule, tested=test,
        contrast=read_contrast_of(call, prompt, answer, contrast, contrast_from, bos=bos),
        replace=replace, convention=convention, seed=seed, bos=bos,
    )  # fmt: skip
    call.note(
        f"{found.provenance.answer}: logit {found.logit:.3f}; {len(found.kept)} neurons kept; "
        f"{len(found.targets)} scores add up within {found.remainder:.1e}"
    )
    return found

"""Tools that look at one prompt, or two: run, attribute, paths, compare, explain."""

from typing import Annotated, Any

from pydantic import Field

from ffnprobe.evidence.explaining import explain as explain_answer
from ffnprobe.results import Result
from ffnprobe.serving.answers import Found
from ffnprobe.serving.arguments import (
    Answer,
    AnswerOrPrediction,
    Bos,
    Contrast,
    ContrastFrom,
    Convention,
    Position,
    Prompt,
    Replace,
    Seed,
    Top,
    Versus,
    note_spelling,
    read_contrast,
    read_contrast_of,
)
from ffnprobe.serving.table import Call, tool
from ffnprobe.tracing.answers import predicted
from ffnprobe.tracing.comparison import compare as compare_traces
from ffnprobe.tracing.logit_lens import lens as read_lens
from ffnprobe.tracing.owners import describe_elsewhere
from ffnprobe.tracing.paths import paths as find_paths
from ffnprobe.tracing.pushes import attribute as attribute_answer
from ffnprobe.tracing.running import run as run_prompt

PUSH = "push only: direct, exact and adds up; what later layers do with it is not in it"


@tool(grade="none: what the model predicts, not why")
def run(
    call: Call,
    prompt: Prompt,
    temperature: Annotated[float, Field(gt=0, description="Divide the logits by this.")] = 1.0,
    top: Top = 10,
    lens: Annotated[bool, Field(description="Also the logit lens after each layer.")] = False,
    bos: Bos = None,
) -> Result | Found:
    """Run a prompt and list the predicted next tokens with their probabilities."""
    trace = run_prompt(call.model, prompt, bos=bos, patterns=False)
    tables = {"predictions": trace.predictions(top, temperature=temperature)}
    if lens:
        tables["lens"] = read_lens(trace).table
    return Found(trace, tables, f"next token after {' '.join(trace.tokens)}")


@tool(grade=PUSH)
def attribute(
    call: Call,
    prompt: Prompt,
    answer: AnswerOrPrediction = None,
    versus: Versus = None,
    position: Position = -1,
    contrast: Contrast = None,
    contrast_from: ContrastFrom = None,
    convention: Convention = "centred",
    top: Top = 10,
    bos: Bos = None,
) -> Result | Found:
    """List the neurons that pushed an answer most, in logits (direct logit attribution); parts add up."""
    trace = run_prompt(call.model, prompt, bos=bos)
    wanted = predicted(trace, position) if answer is None else answer
    told = call.model.vocab.text([wanted]) if isinstance(wanted, int) else wanted
    note_spelling(call, told)
    others = read_contrast(call, prompt, told, contrast, contrast_from)
    options: dict[str, Any] = {
        "versus": versus, "position": position, "convention": convention,
    }  # fmt: skip
    if others is not None:
        found = attribute_answer(trace, wanted, contrast=others, **options)
        return Found(found, found.tables() | {"rows": found.top(top)})
    pushes = attribute_answer(trace, wanted, **options)
    if len(pushes.pieces) == 1 and (elsewhere := describe_elsewhere(pushes.pieces[0])):
        call.note(elsewhere)
    return Found(pushes, pushes.tables() | {"rows": pushes.top(top)})


@tool(grade=PUSH)
def paths(
    call: Call,
    prompt: Prompt,
    answer: Answer,
    versus: Versus = None,
    position: Position = -1,
    depth: Annotated[
        int | None,
        Field(ge=1, description="1 splits heads; 2 also the heads that they read; by default all."),
    ] = None,
    convention: Convention = "centred",
    top: Top = 10,
    bos: Bos = None,
) -> Result | Found:
    """Say who owns what attention pushed: neurons and embeddings at earlier tokens, head by head."""
    note_spelling(call, answer)
    trace = run_prompt(call.model, prompt, bos=bos)
    found = find_paths(
        trace, answer, versus=versus, position=position, depth=depth, convention=convention
    )
    tables = found.tables() | {"rows": found.top(top), "neurons": found.by_neuron(top)}
    return Found(found, tables)


@tool(grade=f"{PUSH}; a difference goes along with the other answer, it need not cause it")
def compare(
    call: Call,
    prompt: Prompt,
    other: Prompt,
    answer: AnswerOrPrediction = None,
    versus: Versus = None,
    top: Top = 10,
    bos: Bos = None,
) -> Result | Found:
    """Compare two prompts: which neurons act differently, and what that is worth to an answer."""
    first, second = (
        run_prompt(call.model, text, bos=bos, patterns=False) for text in (prompt, other)
    )
    found = compare_traces(first, second, answer, versus=versus)
    _, *rest = found.tables().items()
    return Found(found, {"neurons": found.top(top), **dict(rest)})


@tool(grade="graded neuron by neuron", has_progress=True)
def explain(
    call: Call,
    prompt: Prompt,
    answer: AnswerOrPrediction = None,
    versus: Versus = None,
    contrast: Contrast = None,
    contrast_from: ContrastFrom = None,
    top: Top = 10,
    replace: Replace = None,
    convention: Convention = "centred",
    effects: Annotated[bool, Field(description="Measure ablation effects; faster without.")] = True,
    subject: Annotated[
        str | None, Field(description="What the sentence is about, if it is not found rightly.")
    ] = None,
    seed: Seed = 0,
    bos: Bos = None,
) -> Result:
    """Find the few neurons that carry an answer, with graded evidence: weights, pushes, exact effects."""
    if answer is not None:
        note_spelling(call, answer)
    others = read_contrast_of(call, prompt, answer, contrast, contrast_from, bos=bos)
    found = explain_answer(
        call.model, prompt, answer, versus=versus, contrast=others, top=top, replace=replace,
        convention=convention, effects=effects, subject=subject, seed=seed, bos=bos,
        scan=call.scan, progress=call.budget.count,
    )  # fmt: skip
    call.note(found.standing)
    for remark in found.remarks:
        call.note(remark)
    return found

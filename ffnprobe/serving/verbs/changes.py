"""Tools that change what neurons do: ablate, steer."""

from typing import Annotated, Any, Literal

from pydantic import Field

from ffnprobe.errors import OptionRefused
from ffnprobe.interventions.ablation import ablate as ablate_neurons
from ffnprobe.interventions.ablation import ablate_layers
from ffnprobe.interventions.choices import choose_neurons, split_positions
from ffnprobe.interventions.gradients import estimate
from ffnprobe.interventions.steering import steer as steer_prompt
from ffnprobe.results import Result
from ffnprobe.serving.answers import Found
from ffnprobe.serving.arguments import (
    Answer,
    Bos,
    Contrast,
    ContrastFrom,
    Convention,
    Neurons,
    Positions,
    Prompt,
    Replace,
    Seed,
    Top,
    Versus,
    note_spelling,
    read_contrast,
)
from ffnprobe.serving.table import Call, tool
from ffnprobe.tracing.running import run as run_prompt

MOST_WRITTEN = 200
Changes = Annotated[dict[str, float] | None, Field(max_length=1000)]


@tool(grade="effect only: exact unless an estimate; effects do not add up", has_progress=True)
def ablate(
    call: Call,
    prompt: Prompt,
    answer: Answer,
    versus: Versus = None,
    replace: Replace = None,
    contrast: Contrast = None,
    contrast_from: ContrastFrom = None,
    convention: Convention = "centred",
    position: Positions = -1,
    neuron: Annotated[Neurons | None, Field(description="Only these neurons.")] = None,
    together: Annotated[
        list[list[str]] | None,
        Field(max_length=100, description="Groups of neurons, each ablated at once."),
    ] = None,
    layers: Annotated[
        bool, Field(description="Ablate whole MLP layers, position by position.")
    ] = False,
    method: Annotated[
        Literal["exact", "gradient"], Field(description="Exact effects, or a fast estimate.")
    ] = "exact",
    log_probability: Annotated[
        bool, Field(description="Also the effect on the log-probability.")
    ] = True,
    top: Top = 10,
    bos: Bos = None,
) -> Result | Found:
    """Ablate each neuron in turn and measure what the answer loses, in logits (positive: it helped)."""
    if together is not None and (neuron is not None or layers or method != "exact"):
        raise OptionRefused(
            "together ablates several neurons at once, exactly.",
            remedy="leave out neuron, layers and method",
        )
    note_spelling(call, answer)
    trace = run_prompt(call.model, prompt, bos=bos, patterns=False)
    asked: dict[str, Any] = {
        "versus": versus, "replace": replace, "convention": convention,
        "contrast": read_contrast(call, prompt, answer, contrast, contrast_from),
    }  # fmt: skip
    measured = asked | {"log_probability": log_probability}
    if layers:
        return ablate_layers(trace, answer, progress=call.budget.count, **measured)
    positions = [position] if isinstance(position, int) else position
    if together is not None:
        return ablate_neurons(trace, answer, together=together, position=positions, **measured)
    named, _ = split_positions(neuron, -1)
    many = top if named is None else min(top, int(choose_neurons(call.model, named).sum()))
    if method == "gradient":
        estimates = estimate(trace, answer, **asked)
        table = estimates.top(many, position=positions, neurons=neuron)
        return Found(estimates, {"estimates": table})
    effects = ablate_neurons(
        trace, answer, position=positions, neurons=neuron, progress=call.budget.count, **measured
    )
    if neuron is None and position == -1:
        elsewhere = estimate(trace, answer, **asked).describe_elsewhere(effects.positions)
        if elsewhere:
            call.note(elsewhere.replace("--position", "position"))
    return Found(effects, {"effects": effects.top(many)})


@tool(grade="effect of a change: what the model can be made to say, not what it uses")
def steer(
    call: Call,
    prompt: Prompt,
    activations: Annotated[Changes, Field(description='Set activations: {"L3N12": 4.0}.')] = None,
    scale: Annotated[Changes, Field(description='Multiply activations: {"L3N12": 0.0}.')] = None,
    position: Annotated[
        Positions | None, Field(description="Positions in the prompt; all, and generated text.")
    ] = None,
    generate: Annotated[
        int, Field(ge=0, le=MOST_WRITTEN, description="How many tokens to generate.")
    ] = 0,
    temperature: Annotated[
        float | None, Field(description="Sampling temperature; greedy by default.")
    ] = None,
    seed: Seed = 0,
    top: Top = 10,
    bos: Bos = None,
) -> Result | Found:
    """Set or scale activations and compare predictions, and generated text, before and after."""
    positions = [position] if isinstance(position, int) else position
    steered = steer_prompt(
        call.model, prompt, activations or {}, scale=scale or {}, position=positions,
        generate=generate, temperature=temperature, seed=seed, bos=bos,
    )  # fmt: skip
    tables = {"predictions": steered.predictions(top)}
    if generate:
        tables["texts"] = steered.texts()
    return Found(steered, tables)

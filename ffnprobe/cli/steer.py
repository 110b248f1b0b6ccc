"""`ffnprobe steer PROMPT --set L3N12=4.0`: change activations and compare predictions."""

from collections.abc import Iterable
from typing import Annotated

import typer

from ffnprobe.cli.command import Common, command
from ffnprobe.cli.options import (
    BosOption,
    HooksOption,
    PromptArgument,
    TokensOption,
    read_positions,
    read_prompt,
)
from ffnprobe.errors import OptionRefused


@command
def steer(
    common: Common,
    prompt: PromptArgument,
    activations: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NEURON=NUMBER", help="Set a neuron's activation (repeatable)."
        ),
    ] = None,
    scale: Annotated[
        list[str] | None,
        typer.Option(
            "--scale", metavar="NEURON=NUMBER", help="Multiply a neuron's activation (repeatable)."
        ),
    ] = None,
    position: Annotated[
        str | None,
        typer.Option(
            help="Positions in the prompt: -1, 3, 3,5 or all.",
            show_default="all, and generated text",
        ),
    ] = None,
    generate: Annotated[int, typer.Option(help="How many tokens to generate.")] = 0,
    temperature: Annotated[
        float | None, typer.Option(help="Sampling temperature.", show_default="greedy")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed for sampling.")] = 0,
    top: TokensOption = 10,
    bos: BosOption = None,
    hooks: HooksOption = False,
) -> None:
    """Set or scale activations and compare predictions and generated text before and after."""
    text = read_prompt(prompt)
    positions = None if position is None else read_positions(position)
    given, factors = read_changes(activations or []), read_changes(scale or [])
    model = common.load(hooks=hooks)
    from ffnprobe.interventions.steering import steer as steer_prompt

    steered = steer_prompt(
        model, text, given, scale=factors, position=positions, generate=generate,
        temperature=temperature, seed=seed, bos=bos,
    )  # fmt: skip
    common.note(steered.provenance.describe())
    tables = {"predictions": steered.predictions(top)}
    if generate:
        tables["texts"] = steered.texts()
    title = f"next token after {' '.join(steered.trace.tokens)}"
    common.emit(tables, steered.provenance, title=title, result=steered)


def read_changes(texts: Iterable[str]) -> dict[str, float]:
    """Read changes such as `L3N12=4.0`; the number itself is checked where it is used."""
    changes: dict[str, float] = {}
    for text in texts:
        name, _, number = text.partition("=")
        try:
            value = float(number)
        except ValueError:
            raise OptionRefused(
                f'"{text}" does not set a neuron to a number.', remedy=f"{name or 'L3N12'}=4.0"
            ) from None
        if name in changes:
            raise OptionRefused(f"{name} is given twice.", remedy="name it once")
        changes[name] = value
    return changes

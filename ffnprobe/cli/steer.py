"""`ffnprobe steer PROMPT --set L3N12=4.0`: change neurons and compare what the model says."""

from collections.abc import Iterable
from typing import Annotated

import typer

from ffnprobe.cli.command import BosOption, Common, command, read_prompt
from ffnprobe.cli.positions import read_positions
from ffnprobe.errors import OptionRefused


@command
def steer(
    common: Common,
    prompt: Annotated[str, typer.Argument(help="The text; - reads it from standard input.")],
    activations: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NEURON=NUMBER", help="Give a neuron an activation."),
    ] = None,
    scale: Annotated[
        list[str] | None,
        typer.Option("--scale", metavar="NEURON=NUMBER", help="Multiply a neuron's activation."),
    ] = None,
    position: Annotated[
        str | None,
        typer.Option(
            help="Where in the prompt: -1, 3, 3,5 or all.", show_default="all, and generated text"
        ),
    ] = None,
    generate: Annotated[int, typer.Option(help="How many tokens to write on.")] = 0,
    temperature: Annotated[
        float | None, typer.Option(help="Sample the text at this.", show_default="greedy")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the sampling.")] = 0,
    top: Annotated[int, typer.Option("--top", "-k", help="How many tokens.")] = 10,
    bos: BosOption = None,
) -> None:
    """Set or scale neurons' activations and compare predictions, and texts, before and after."""
    text = read_prompt(prompt)
    places = None if position is None else read_positions(position)
    given, factors = read_changes(activations or []), read_changes(scale or [])
    model = common.load()
    from ffnprobe.interventions.steering import steer as steer_prompt

    steered = steer_prompt(
        model, text, given, scale=factors, position=places, generate=generate,
        temperature=temperature, seed=seed, bos=bos,
    )  # fmt: skip
    common.note(steered.provenance.describe())
    tables = {"predictions": steered.predictions(top)}
    if generate:
        tables["texts"] = steered.texts()
    title = f"next token after {' '.join(steered.trace.tokens)}"
    common.emit(tables, steered.provenance, title=title, result=steered)


def read_changes(texts: Iterable[str]) -> dict[str, float]:
    """Read `L3N12=4.0`, one or more; the number itself is checked where it is used."""
    changes: dict[str, float] = {}
    for text in texts:
        name, _, number = text.partition("=")
        try:
            value = float(number)
        except ValueError:
            raise OptionRefused(
                f'"{text}" gives no number to a neuron.', remedy=f"{name or 'L3N12'}=4.0"
            ) from None
        if name in changes:
            raise OptionRefused(f"{name} is given twice.", remedy="name it once")
        changes[name] = value
    return changes

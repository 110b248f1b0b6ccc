"""A neuron's examples as coloured text in the terminal."""

from rich.text import Text

from ffnprobe.corpora.contexts import HEADS, Example, Examples, join, name_numbers, name_source
from ffnprobe.views.terminal.printing import console
from ffnprobe.views.theme import BLUE, VERMILLION


def print_examples(examples: Examples, *, top: int) -> None:
    """Print a neuron's examples under its mean, the token itself coloured."""
    out = console()
    out.print()
    out.print(Text(examples.title, style="bold"))
    for side, listed in examples.sides(top).items():
        if listed:
            out.print(Text(f"\n{HEADS[side]}", style="bold"))
        for example in listed:
            out.print(_line(example))


def _line(example: Example) -> Text:
    colour = BLUE if example.activation > 0 else VERMILLION
    return Text.assemble(
        f"{name_numbers(example)}  {join(example.before)}",
        (f"[{example.token}]", f"bold {colour}"),
        join(example.after),
        (f"  {name_source(example)}", "dim"),
    )

"""A neuron's examples as coloured text in the terminal."""

from rich.text import Text

from ffnprobe.corpora.contexts import Example, Examples, join
from ffnprobe.views.terminal.printing import console
from ffnprobe.views.theme import BLUE, VERMILLION


def print_examples(examples: Examples, *, k: int) -> None:
    """Print the strongest and the weakest under the neuron's mean, the token itself coloured."""
    out = console()
    out.print()
    out.print(Text(examples.title, style="bold"))
    for side, listed in examples.sides(k).items():
        out.print(Text(f"\n{side}", style="bold"))
        for example in listed:
            out.print(_line(example), soft_wrap=True)


def _line(example: Example) -> Text:
    colour = BLUE if example.activation > 0 else VERMILLION
    return Text.assemble(
        f"{example.activation:9.3f}  {join(example.before)}",
        (f"[{example.token}]", f"bold {colour}"),
        join(example.after),
        (f"  ({example.text}, {example.position})", "dim"),
    )

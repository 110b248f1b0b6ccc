"""An explanation as a page in the terminal."""

from collections.abc import Iterable

import pandas as pd
from rich.text import Text

from ffnprobe.evidence.explanation import Explanation
from ffnprobe.views.terminal.printing import console, print_grid, print_tables


def print_as_known(steps: Iterable[Explanation], *, with_pieces: bool = False) -> Explanation:
    """Print each part of an explanation as soon as it is known; return the last step.

    The text is the same, in the same order, whether it comes in steps or at once. Of an answer of several
    tokens each neuron's numbers are added up; `with_pieces` also prints each piece's own.
    """
    has_head = has_map = has_neurons = False
    for step in steps:
        if step.curve is None and step.coverage is None and step.map is None:
            continue  # the verdict comes first
        if not has_head:
            _print_head(step)
            has_head = True
        if step.map is not None and not has_map:
            _print_map(step.map, is_whole=None not in step.position_effects)
            has_map = True
        if step.coverage is not None and not has_neurons:
            _print_neurons(step, with_pieces)
            has_neurons = True
    if not has_head:
        _print_head(step)
    if not has_neurons:
        _print_neurons(step, with_pieces)
    if step.together is not None:
        print_tables({"ablated together": step.together})
    console().print(Text(step.caption, style="dim"))
    return step


def _print_head(explanation: Explanation) -> None:
    out = console()
    out.print(Text(f"why {explanation.title}", style="bold"))
    out.print(Text(explanation.standing))
    for sentence in explanation.verdict:
        out.print(Text(sentence))
    out.print()
    print_tables({"what the model predicts next": explanation.predictions.drop(columns="id")})


def _print_map(table: pd.DataFrame, *, is_whole: bool) -> None:
    title = "what the answer loses without an MLP layer, by position (logits)"
    print_grid(title if is_whole else f"{title}; --exact: at all", lay_out_map(table))


def _print_neurons(explanation: Explanation, with_pieces: bool) -> None:
    hidden = ["layer", "neuron", "position", "gate_score", "score"]
    shown = explanation.neurons.drop(columns=hidden, errors="ignore")
    effect = "effect: lost when ablated; " if "effect" in shown else ""
    said = f"push: direct at the last token, before it through a head; {effect}logits"
    print_tables({f"the neurons that matter ({said})": shown})
    if len(explanation.paths):
        paths = explanation.paths.drop(columns=["layer", "neuron"])
        print_tables({"the strongest paths through attention (logits)": paths})
    print_tables({"what makes up the logit": explanation.parts})
    if explanation.pieces is not None and with_pieces:
        pieces = explanation.pieces.drop(columns=["layer", "neuron", "position"])
        print_tables({"the same neurons, piece by piece (logits)": pieces})


def lay_out_map(table: pd.DataFrame, values: str = "effect") -> pd.DataFrame:
    """Lay the map out with a row per layer and a column per position, the token above."""
    grid = table.pivot(index="layer", columns="position", values=values)
    tokens = table.drop_duplicates("position").set_index("position").token
    rows = [
        [f"L{layer}", *(f"{value:+.2f}" for value in row)]
        for layer, row in zip(grid.index, grid.to_numpy(), strict=True)
    ]
    # Columns may hold the same token twice, so the frame is built from rows, not from names.
    frame = pd.DataFrame(rows)
    frame.columns = pd.Index(["", *(str(tokens[position]) for position in grid.columns)])
    return frame

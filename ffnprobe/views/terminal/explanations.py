"""An explanation as a page in the terminal: the verdict, ten rows, and with `full` all of its tables."""

import pandas as pd
from rich.text import Text

from ffnprobe.evidence.explanation import Explanation
from ffnprobe.views.terminal.printing import console, print_grid, print_tables

PUSH = "push: direct and through attention"
EFFECT = "; effect: lost without the neuron"
MORE = "more: --full (all columns, map, paths, parts, curve), --html FILE (a page)"


def print_explanation(explanation: Explanation, *, full: bool = False) -> None:
    """Print what a reader asks for first, in about twenty lines; `full` prints the rest behind it."""
    out = console()
    out.print(Text(explanation.standing, style="bold"))
    for sentence in explanation.verdict:
        out.print(Text(sentence))
    print_tables({"": explanation.shown})
    for remark in explanation.remarks:
        out.print(Text(remark))
    if not full:
        said = f"{PUSH}{EFFECT if 'effect' in explanation.shown else ''}; in logits"
        out.print(Text(f"{said}\n{MORE}", style="dim"))
        return
    out.print()
    _print_all(explanation)
    out.print(Text(explanation.caption, style="dim"))


def _print_all(explanation: Explanation) -> None:
    hidden = ["layer", "neuron", "gate_score", "score"]
    print_tables({"the neurons": explanation.neurons.drop(columns=hidden, errors="ignore")})
    if explanation.pieces is not None:
        pieces = explanation.pieces.drop(columns=["layer", "neuron"])
        print_tables({"the same neurons, piece by piece (logits)": pieces})
    if len(explanation.against):
        print_tables({"what holds the answer back": explanation.against.drop(columns=hidden, errors="ignore")})  # fmt: skip
    if explanation.curve is not None and len(explanation.curve.table):
        print_tables({"what it becomes without the first neurons": explanation.curve.table})
    print_tables({"what the model predicts next": explanation.predictions.drop(columns="id")})
    if explanation.map is not None:
        title = "what the answer loses without an MLP layer, by position (logits)"
        whole = None not in explanation.position_effects
        print_grid(title if whole else f"{title}; ablate-layers: at all", lay_out_map(explanation.map))  # fmt: skip
    if len(explanation.paths):
        paths = explanation.paths.drop(columns=["layer", "neuron"])
        print_tables({"the strongest paths through attention (logits)": paths})
    print_tables({"what makes up the logit": explanation.parts})


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

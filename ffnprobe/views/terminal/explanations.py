"""An explanation as a page in the terminal."""

import pandas as pd
from rich.text import Text

from ffnprobe.evidence.explanation import Explanation
from ffnprobe.views.terminal.printing import console, print_tables

# About this many tokens of each kind fit into a line of a terminal with the numbers.
TOKENS = 3


def print_explanation(explanation: Explanation) -> None:
    """Print what is explained, then each table under a line that says how to read it."""
    out = console()
    out.print(Text(f"why {explanation.title}", style="bold"))
    out.print(Text(explanation.standing))
    out.print()
    print_tables({"what the model predicts next": explanation.predictions.drop(columns="id")})
    if explanation.map is not None:
        print_tables(
            {
                "what the answer loses without an MLP layer, by position (logits)": _grid(
                    explanation.map
                )
            }
        )
    hidden = ["layer", "neuron", "position", "gate_score", "score"]
    shown = explanation.neurons.drop(columns=hidden, errors="ignore")
    for column in shown.columns[shown.columns.str.endswith("_tokens")]:
        shown[column] = shown[column].str.split(" ").str[:TOKENS].str.join(" ")
    print_tables(
        {
            "the neurons that matter (push: direct at the last token, before it through a head; "
            "effect: lost when ablated; logits)": shown
        }
    )
    if len(explanation.paths):
        paths = explanation.paths.drop(columns=["layer", "neuron"])
        print_tables({"the strongest paths through attention (logits)": paths})
    print_tables({"what makes up the logit": explanation.parts})
    if explanation.pieces is not None:
        pieces = explanation.pieces.drop(columns=["layer", "neuron", "position"])
        print_tables({"the same neurons, piece by piece (logits)": pieces})
    if explanation.together is not None:
        print_tables({"ablated together": explanation.together})
    out.print(Text(explanation.caption, style="dim"))


def _grid(table: pd.DataFrame) -> pd.DataFrame:
    """Lay the map out with a row per layer and a column per position, the token above."""
    grid = table.pivot(index="layer", columns="position", values="effect")
    tokens = table.drop_duplicates("position").set_index("position").token
    rows = [
        [f"L{layer}", *(f"{value:+.2f}" for value in row)]
        for layer, row in zip(grid.index, grid.to_numpy(), strict=True)
    ]
    # Columns may hold the same token twice, so the frame is built from rows, not from names.
    frame = pd.DataFrame(rows)
    frame.columns = pd.Index(["", *(str(tokens[position]) for position in grid.columns)])
    return frame

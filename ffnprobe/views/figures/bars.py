"""Horizontal bars, one per token or neuron, the first on top, blue above zero and vermillion below."""

from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go

from ffnprobe.views.theme import BLUE, VERMILLION, plain

ROW = 30
SHOWN_TOKENS = 3


def bars(
    values: Sequence[float],
    *,
    hover: Sequence[str],
) -> go.Bar:
    """Draw values from the top down with their numbers at the bars' ends."""
    return go.Bar(
        x=list(values), y=list(range(len(values))), orientation="h",
        marker={"color": [BLUE if value >= 0 else VERMILLION for value in values]},
        text=[f"{value:.3g}" for value in values], textposition="outside", cliponaxis=False,
        customdata=[plain(text) for text in hover], hovertemplate="%{customdata} %{x:.4g}<extra></extra>", showlegend=False,
    )  # fmt: skip


def room(values: Sequence[float], share: float = 0.18) -> list[float]:
    """Return a range for the axis that leaves room for the numbers, and is not empty if all values are zero."""
    low, high = min(0.0, *values), max(0.0, *values)
    span = (high - low) or 1.0
    return [low - (share * span if low < 0 else 0.0), high + share * span]


def height_of(rows: int) -> int:
    """Return the height of a figure with this many bars."""
    return 90 + ROW * rows


def neuron_labels(table: pd.DataFrame) -> list[str]:
    """Label neurons by their name and the first tokens of their answer."""
    return [
        f"{name}  {' '.join(tokens.split(' ')[:SHOWN_TOKENS])}"
        for name, tokens in zip(table["name"], table["answer_tokens"], strict=True)
    ]


def neuron_hovers(table: pd.DataFrame) -> list[str]:
    """Describe neurons by the tokens of question, gate if there is one, and answer."""
    sides = [side for side in ("gate", "question", "answer") if f"{side}_tokens" in table]
    rows = zip(*(table[f"{side}_tokens"] for side in sides), strict=True)
    described = ("; ".join(map(" ".join, zip(sides, row, strict=True))) for row in rows)
    return [f"{name}: {words};" for name, words in zip(table["name"], described, strict=True)]

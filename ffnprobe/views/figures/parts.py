"""What figures are made of: bars, heatmaps, labels that do not overlap, the note under a title."""

from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ffnprobe.provenance import Provenance
from ffnprobe.results import name_settings
from ffnprobe.views.theme import BLUE, VERMILLION, heat, plain

ROW = 30
SHOWN_TOKENS = 3
# More points than this are drawn on a canvas, not as vectors.
VECTORS = 10_000
Values = Sequence[Sequence[float]]
TOKENS = 16
NAMED = 8
# Width and height of a label, as shares of the axes.
_WIDE, _HIGH = 0.12, 0.07


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


def new_grids(count: int = 1, **options: object) -> go.Figure:
    """Start a figure with this many heatmaps side by side."""
    return make_subplots(cols=count, **options)


def add_grid(
    figure: go.Figure,
    values: Values,
    *,
    rows: Sequence[str],
    columns: Sequence[str] | None = None,
    column: int = 1,
    signed: bool = True,
    limit: float | None = None,
    digits: int | None = None,
    bar: str | None = None,
    across: str = "",
) -> go.Figure:
    """Add a heatmap, first row on top; without names for its columns they are numbered `across`."""
    width = len(values[0])
    names = [f"{across} {number}" for number in range(width)] if columns is None else list(columns)
    drawn = heat(
        values, rows=rows, columns=names, signed=signed, limit=limit, digits=digits, bar=bar
    )
    where = f"{plain(across)} %{{x}}" if columns is None else "position %{x}"
    drawn.update(
        x=list(range(width)), y=list(range(len(rows))),
        hovertemplate=f"row %{{y}}, {where}: %{{z:.4g}}<extra></extra>",
    )  # fmt: skip
    gap = 0 if width > 64 else 1
    drawn.update(xgap=gap, ygap=gap, textfont={"size": 12})
    figure.add_trace(drawn, 1, column)
    cell = {"row": 1, "col": column}
    label(figure.update_yaxes, rows, autorange="reversed", showgrid=False, **cell)
    figure.update_xaxes(zeroline=False, showgrid=False, **cell)
    if columns is not None:
        label(figure.update_xaxes, columns, **cell)
    return figure


def label(update: object, names: Sequence[str], **options: object) -> None:
    """Write names at 0, 1, 2, … of an axis."""
    assert callable(update)
    names = [plain(name) for name in names]
    update(tickvals=list(range(len(names))), ticktext=names, zeroline=False, **options)


def say(provenance: Provenance) -> str:
    """Name the answer, the model, the prompt and the settings."""
    than = f" rather than {provenance.versus}" if provenance.versus else ""
    tokens = provenance.tokens or ()
    if provenance.position is not None:
        tokens = tokens[: provenance.position + 1]
    answer = f" {provenance.answer}{than}" if provenance.answer else ""
    after = f" after {join_tokens(tokens)}" if tokens else ""
    settings = f"; {known}" if (known := name_settings(provenance)) else ""
    return f"{provenance.model}:{answer}{after}{settings}"


def join_tokens(tokens: Sequence[str]) -> str:
    """Write a prompt's tokens; of a long prompt the last ones."""
    shown = " ".join(tokens[-TOKENS:])
    return shown if len(tokens) <= TOKENS else f"… {shown}"


def keep_apart(
    xs: Sequence[float], ys: Sequence[float], *, span: float, strengths: Sequence[float]
) -> set[int]:
    """Choose the strongest points whose labels do not overlap."""
    kept: list[tuple[int, float, float]] = []
    for order in sorted(range(len(xs)), key=lambda n: -strengths[n]):
        x, y = xs[order] / span, ys[order] / span
        if all(abs(x - a) > _WIDE or abs(y - b) > _HIGH for _, a, b in kept):
            kept.append((order, x, y))
    return {order for order, _, _ in kept[:NAMED]}

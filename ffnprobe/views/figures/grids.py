"""Heatmaps with numbered axes: a token that occurs twice in a prompt has two columns."""

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ffnprobe.views.theme import heat, plain

Values = Sequence[Sequence[float]]


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

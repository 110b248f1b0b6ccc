"""What figures are made of: bars, boxes, pairs, heatmaps, labels that do not overlap, the note under a title."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

import ffnprobe as fp
from ffnprobe.provenance import Provenance
from ffnprobe.results import name_settings
from ffnprobe.views.theme import BLACK, BLUE, GREY, VERMILLION, apply_theme, heat, plain

ROW = 30
# Of a neuron's tokens the first are shown, of a prompt's the last; of points the strongest are named.
SHOWN_TOKENS, TOKENS, NAMED = 3, 16, 8
# More points than this are drawn on a canvas, not as vectors.
VECTORS = 10_000
Texts = Sequence[str]
Numbers = Sequence[float]
Values = Sequence[Numbers]
Look = Mapping[str, Any]
# Width and height of a label, as shares of the axes.
_WIDE, _HIGH = 0.12, 0.07
# A legend below the axis and its name.
BELOW = {"orientation": "h", "y": -0.16}


def draw_bars(values: Numbers, title: str, *, names: Texts, hover: Texts, **look: Any) -> go.Figure:
    """Draw values as bars from the top down; `look` goes to the theme."""
    figure = add_bars(go.Figure(), values, names=names, hover=hover)
    return apply_theme(figure, title, height=height_of(len(values)), **look)


def add_bars(
    figure: go.Figure,
    values: Numbers,
    *,
    names: Texts,
    hover: Texts,
    room: float = 0.18,
    **cell: int,
) -> go.Figure:
    """Add bars with their numbers at the ends; `room` is the share of the axis left for these."""
    figure.add_bar(
        x=list(values), y=list(range(len(values))), orientation="h",
        marker={"color": [sign_colour(value) for value in values]},
        text=[f"{value:.3g}" for value in values], textposition="outside", cliponaxis=False,
        customdata=[plain(text) for text in hover], hovertemplate="%{customdata} %{x:.4g}<extra></extra>",
        showlegend=False, **cell,
    )  # fmt: skip
    label(figure.update_yaxes, names, autorange="reversed", **cell)
    low, high = min(0.0, *values), max(0.0, *values)
    free = room * ((high - low) or 1.0)  # some, even if all values are zero
    return figure.update_xaxes(range=[low - (free if low < 0 else 0.0), high + free], **cell)


def sign_colour(value: float) -> str:
    return BLUE if value >= 0 else VERMILLION


def height_of(rows: int) -> int:
    return 90 + ROW * rows


def neuron_labels(table: pd.DataFrame, column: str = "answer_tokens") -> list[str]:
    tokens = first_tokens(table[column])
    return [f"{name}  {first}" for name, first in zip(table["name"], tokens, strict=True)]


def first_tokens(column: pd.Series) -> list[str]:
    return [" ".join(tokens.split(" ")[:SHOWN_TOKENS]) for tokens in column]


def list_both_ends(result: "fp.Pushes | fp.Effects", top: int, *, among: int) -> pd.DataFrame:
    """List the first and the last neurons; of too few `among` which to choose, the first alone."""
    half = min(top, among // 2 or 1)
    table = result.top(half)
    if 2 * half <= among:
        table = pd.concat([table, result.against(half)[::-1]], ignore_index=True)
    return table


def neuron_hovers(table: pd.DataFrame) -> list[str]:
    """Describe neurons by the tokens of question, gate if there is one, and answer."""
    sides = [side for side in ("gate", "question", "answer") if f"{side}_tokens" in table]
    rows = zip(*(table[f"{side}_tokens"] for side in sides), strict=True)
    described = ("; ".join(map(" ".join, zip(sides, row, strict=True))) for row in rows)
    return [f"{name}: {words};" for name, words in zip(table["name"], described, strict=True)]


def draw_pairs(names: Texts, *sides: Look, line: Look, **both: Any) -> go.Figure:
    """Draw two marks in each row, joined by a line; each of the sides, and `both`, are plotly's options."""
    figure, rows = go.Figure(), list(range(len(names)))
    for side in sides:
        figure.add_scatter(y=rows, mode="markers", **side, **both)
    for row, (start, end) in enumerate(zip(*(side["x"] for side in sides), strict=True)):
        figure.add_shape(type="line", x0=start, x1=end, y0=row, y1=row, line=line, layer="below")
    label(figure.update_yaxes, names, autorange="reversed")
    return figure


def draw_diagonal(
    table: pd.DataFrame, rest: pd.DataFrame | None, axes: Texts, *, same: str, name: str,
    strengths: Numbers, hover: str, ends: Numbers = (), **dots: Any,
) -> go.Figure:  # fmt: skip
    """Draw neurons' two numbers and a line where they are alike; the rest, if any, are `dots`."""
    xs, ys = (table[axis].tolist() for axis in axes)
    other_xs, other_ys = ([] if rest is None else rest[axis].tolist() for axis in axes)
    reached = [*xs, *ys, *other_xs, *other_ys, *ends]
    low, high = min(reached), max(reached)
    line = {"color": GREY, "dash": "dash", "width": 1}
    figure = go.Figure().add_scatter(
        x=[low, high], y=[low, high], mode="lines", name=same, line=line, hoverinfo="skip"
    )
    if rest is not None:
        look: dict[str, Any] = {"type": "scatter", "name": "other neurons", "mode": "markers"}
        look |= {"marker_color": GREY, "text": rest["name"].tolist()}
        look["hovertemplate"] = f"%{{text}}: {hover}<extra></extra>"
        figure.add_trace({"x": other_xs, "y": other_ys, **look, **dots})
    named = keep_apart(xs, ys, span=high - low or 1.0, strengths=strengths)
    return figure.add_scatter(
        x=xs, y=ys, mode="markers+text", name=name, marker={"color": BLUE, "size": 9},
        text=[name if row in named else "" for row, name in enumerate(table["name"])],
        textposition="top center", customdata=[plain(text) for text in neuron_hovers(table)],
        hovertemplate=f"%{{customdata}} {hover}<extra></extra>",
    )  # fmt: skip


def layer_bars(
    table: pd.DataFrame, total: str, columns: Mapping[str, tuple[str, str]], **look: Any
) -> list[go.Bar | go.Scatter]:
    """Draw bars of columns, each with its name and colour, for each layer; its sum is a diamond."""
    layers = [f"L{layer}" for layer in table.layer]
    bars = [
        go.Bar(x=layers, y=table[column].tolist(), name=name, marker_color=colour, **look)
        for column, (name, colour) in columns.items()
    ]
    mark = {"color": BLACK, "symbol": "diamond", "size": 10}
    sums = {"name": "the layer's sum", "mode": "markers", "marker": mark}
    return [*bars, go.Scatter(x=layers, y=table[total].tolist(), **sums, **look)]


def write_boxed(figure: go.Figure, x: float, y: float, text: str, *, weight: str = "bold") -> None:
    """Write a name on white, so that lines do not cross it."""
    figure.add_annotation(
        x=x, y=y, text=text, showarrow=False, bgcolor="white", bordercolor=GREY, borderwidth=1,
        borderpad=3, font={"size": 13, "color": BLACK, "weight": weight},
    )  # fmt: skip


def draw_grid(
    values: Values,
    *,
    rows: Texts,
    columns: Texts | None = None,
    column: int = 1,
    digits: int | None = None,
    across: str = "",
    into: go.Figure | None = None,
    **look: Any,
) -> go.Figure:
    """Draw a `heat` into a figure's column; columns without names are numbered `across`."""
    figure = make_subplots() if into is None else into
    width = len(values[0])
    drawn = heat(values, rows=(), columns=(), digits=digits, **look)
    where = f"{plain(across)} %{{x}}" if columns is None else "position %{x}"
    gap = 0 if width > 64 else 1
    drawn.update(
        x=list(range(width)), y=list(range(len(rows))), xgap=gap, ygap=gap, textfont={"size": 12},
        hovertemplate=f"row %{{y}}, {where}: %{{z:.4g}}<extra></extra>",
    )  # fmt: skip
    figure.add_trace(drawn, 1, column)
    cell = {"row": 1, "col": column}
    label(figure.update_yaxes, rows, autorange="reversed", showgrid=False, **cell)
    figure.update_xaxes(zeroline=False, showgrid=False, **cell)
    if columns is not None:
        label(figure.update_xaxes, columns, **cell)
    return figure


def label(update: Callable[..., object], names: Texts, **options: object) -> None:
    """Write names at 0, 1, 2, … of an axis."""
    texts = [plain(name) for name in names]
    update(tickvals=list(range(len(texts))), ticktext=texts, zeroline=False, **options)


def say(provenance: Provenance) -> str:
    """Name the answer, the model, the prompt and the settings."""
    tokens = provenance.tokens or ()
    if provenance.position is not None:
        tokens = tokens[: provenance.position + 1]
    answer = f" {say_answer(provenance)}" if provenance.answer else ""
    after = f" after {join_tokens(tokens)}" if tokens else ""
    settings = f"; {named}" if (named := name_settings(provenance)) else ""
    return f"{provenance.model}:{answer}{after}{settings}"


def say_answer(provenance: Provenance) -> str:
    than = f" rather than {provenance.versus}" if provenance.versus else ""
    return f"{provenance.answer}{than}"


def say_model(provenance: Provenance) -> str:
    return f"{provenance.model}; {provenance.describe()}"


def join_tokens(tokens: Texts) -> str:
    """Write a prompt's tokens; of a long prompt the last ones."""
    shown = " ".join(tokens[-TOKENS:])
    return shown if len(tokens) <= TOKENS else f"… {shown}"


def keep_apart(xs: Numbers, ys: Numbers, *, span: float, strengths: Numbers) -> set[int]:
    """Choose the strongest points whose labels do not overlap."""
    chosen: dict[int, tuple[float, float]] = {}
    for order in sorted(range(len(xs)), key=lambda n: -strengths[n]):
        x, y = xs[order] / span, ys[order] / span
        if all(abs(x - a) > _WIDE or abs(y - b) > _HIGH for a, b in chosen.values()):
            chosen[order] = (x, y)
    return {*list(chosen)[:NAMED]}

"""One theme for every figure: colour-blind-safe, zero in the middle, readable; and how it fits into a page.

Lines differ in colour and in dash (Okabe and Ito's colours), so that a figure survives grey print.
Signed numbers are vermillion below zero, white at zero, blue above; sizes are on cividis. A title
says what is seen; the note below it says on what. Within a page they are text above the figure, which is as
wide as the page, and dark if the page is.

>>> import ffnprobe as fp
>>> screen = fit(fp.plot(fp.read(fp.load("pocket"), "L3N361")), is_dark=True)
>>> screen.title
'L3N361 (unlabelled) answers ␣basketball where it finds ␣basketball, by its weights'
>>> screen.figure["layout"]["template"]["layout"]["paper_bgcolor"]
'#17181A'
"""

import textwrap
from collections.abc import Mapping, Sequence
from html import escape, unescape
from typing import Any, NamedTuple

import plotly.graph_objects as go

BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, BLACK, GREY = "#E69F00", "#56B4E9", "#222222", "#767676"
COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK)
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid")
DIVERGING = ((0.0, "#8C3B00"), (0.2, VERMILLION), (0.5, "#FFFFFF"), (0.8, BLUE), (1.0, "#003E63"))
SEQUENTIAL = "Cividis"
SHADE = "rgba(230, 159, 0, 0.18)"
FONT = "Helvetica Neue, Helvetica, Arial, DejaVu Sans, sans-serif"
WIDTH, HEIGHT = 960, 520
INK, PAPER, GRID = "#E8E8E6", "#17181A", "#33363A"
# Zero has the colour of the background, as it does on white.
_STEPS = ("#FFC08A", VERMILLION, "#24262A", BLUE, "#8CCBF2")
DARK_DIVERGING = tuple((at, dark) for (at, _), dark in zip(DIVERGING, _STEPS, strict=True))
_SWAPS = {BLACK: INK, GREY: "#9A9A9A", BLUE: "#3D9BDC", "white": PAPER, "#FFFFFF": PAPER}
# Keys that hold the data of a figure; the others hold its style.
_DATA = frozenset(("x", "y", "z", "text", "customdata", "ticktext", "tickvals", "hovertemplate"))

_AXIS = {"showgrid": True, "gridcolor": "#E5E5E5", "zeroline": True, "zerolinecolor": GREY,
         "linecolor": GREY, "ticks": "outside", "automargin": True}  # fmt: skip
TEMPLATE = go.layout.Template(
    layout={
        "font": {"family": FONT, "size": 14, "color": BLACK},
        "colorway": COLOURS,
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "xaxis": _AXIS,
        "yaxis": _AXIS,
        "legend": {"bgcolor": "rgba(255,255,255,0.85)"},
        "hoverlabel": {"font": {"family": FONT, "size": 13}},
    }
)


def apply_theme(
    figure: go.Figure,
    title: str,
    *,
    note: str = "",
    x: str | None = None,
    y: str | None = None,
    height: int = HEIGHT,
    width: int = WIDTH,
    **layout: Any,
) -> go.Figure:
    """Apply the theme, with a title that says the finding, a note, axis names, plotly's layout."""
    titles = [plain(line) for line in textwrap.wrap(title, width // 10)]
    notes = [plain(line) for line in textwrap.wrap(note, width // 7)]
    top = 34 + 24 * len(titles) + 18 * len(notes)
    # plotly positions a title of several lines by its middle line.
    drop = 14 + 12 * (len(titles) - 1)
    figure.update_layout(
        template=TEMPLATE, width=width, height=height + top, margin={"t": top + 34, "l": 70, "r": 30, "b": 60},
        title={
            "text": "<br>".join(titles), "x": 0.01, "xanchor": "left", "y": 1 - drop / (height + top),
            "yanchor": "top", "yref": "container", "font": {"size": 18},
            "subtitle": {"text": "<br>".join(notes), "font": {"size": 13, "color": GREY}},
        },
    )  # fmt: skip
    if x is not None:
        figure.update_xaxes(title_text=plain(x))
    if y is not None:
        figure.update_yaxes(title_text=plain(y))
    return figure.update_layout(**layout)


def plain(text: str) -> str:
    """Keep plotly from reading a token such as `<b>` as markup, or `$x$` as mathematics."""
    return escape(text, quote=False).replace("$", "&#36;")


def line_of(order: int) -> dict[str, Any]:
    colour, dash = COLOURS[order % len(COLOURS)], DASHES[order % len(DASHES)]
    return {"color": colour, "dash": dash, "width": 2.2}


def heat(
    values: Sequence[Sequence[float]],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    signed: bool = True,
    limit: float | None = None,
    digits: int | None = 2,
    bar: str | None = None,
) -> go.Heatmap:
    """Draw a heatmap, first row on top, zero white if signed, numbers in its cells unless `digits=None`."""
    scale: Mapping[str, Any] = {"colorscale": SEQUENTIAL}
    if signed:
        most = limit or max((abs(v) for row in values for v in row), default=1.0) or 1.0
        scale = {"colorscale": DIVERGING, "zmid": 0.0, "zmin": -most, "zmax": most}
    written: Mapping[str, Any] = {}
    gap = 0 if digits is None else 1
    if digits is not None:
        # Adding 0.0 turns −0.0 into 0.0, so that no minus sign is written.
        texts = [[f"{round(v, digits) + 0.0:.{digits}f}" for v in row] for row in values]
        written = {"text": texts, "texttemplate": "%{text}"}
    return go.Heatmap(
        z=values, x=[plain(c) for c in columns], y=[plain(r) for r in rows], xgap=gap, ygap=gap,
        showscale=bar is not None, colorbar={"title": {"text": bar or ""}},
        hovertemplate="%{y}, %{x}: %{z:.4g}<extra></extra>", **scale, **written,
    )  # fmt: skip


class Screen(NamedTuple):
    """A figure's title and note as plain text, and the plotly figure below them with its height in pixels."""

    title: str
    note: str
    figure: dict[str, Any]
    height: int


def fit(figure: go.Figure, *, is_dark: bool = False, is_narrow: bool = False) -> Screen:
    """Fit a figure into a page; the figure handed in is not changed."""
    drawn: dict[str, Any] = figure.to_plotly_json()
    layout = {**drawn["layout"]}
    title = layout.pop("title", {})
    layout.pop("width", None)
    margin = {**layout["margin"]}
    height = int(layout["height"]) - int(margin["t"]) + 76
    layout |= {"autosize": True, "height": height, "margin": {**margin, "t": 44, "b": 76}}
    layout["template"] = TEMPLATE.to_plotly_json()
    data = [dict(trace) for trace in drawn["data"]]
    if is_narrow:
        _squeeze(layout, data)
    if is_dark:
        layout, data = _darken(layout), _darken(data)
        look = layout["template"]["layout"]
        look["xaxis"]["gridcolor"] = look["yaxis"]["gridcolor"] = GRID
        look |= {"legend": {"bgcolor": "rgba(0,0,0,0)"}, "shapedefaults": {"line": {"color": INK}}}
    texts = (title.get("text"), title.get("subtitle", {}).get("text"))
    heading, note = (unescape((text or "").replace("<br>", " ")) for text in texts)
    return Screen(heading, note, {"data": data, "layout": layout}, height)


def _darken(look: Any, name: str = "") -> Any:
    """Swap foreground and background colours, and the scale around zero."""
    if name == "colorscale" and [tuple(step) for step in look] == list(DIVERGING):
        return DARK_DIVERGING
    if isinstance(look, dict):
        return {key: part if key in _DATA else _darken(part, key) for key, part in look.items()}
    if isinstance(look, (list, tuple)):
        return [_darken(part) for part in look]
    return _SWAPS.get(look, look) if isinstance(look, str) else look


def _squeeze(layout: dict[str, Any], data: list[dict[str, Any]]) -> None:
    """Make room on a phone: small text, thin margins, the legend on top."""
    layout["font"] = {"size": 10}
    layout["margin"] = {**layout["margin"], "l": 30, "r": 10}
    layout["legend"] = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"}  # fmt: skip
    axis = layout.get("xaxis", {})
    if axis.get("tickangle"):
        layout["xaxis"] = {**axis, "tickangle": -90}
    for trace in data:
        if "texttemplate" in trace or trace["type"] == "bar":
            trace["textfont"] = {"size": 8}
        if "colorbar" in trace:
            trace["showscale"] = False

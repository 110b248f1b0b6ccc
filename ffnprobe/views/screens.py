"""A figure within a page: its title as text above it, as wide as the page, dark if the page is.

>>> import ffnprobe as fp
>>> screen = fit(fp.plot(fp.read(fp.load("pocket"), "L3N361")), is_dark=True)
>>> screen.title
'L3N361 (unlabelled) answers ␣basketball where it finds ␣basketball, by its weights'
>>> screen.figure["layout"]["template"]["layout"]["paper_bgcolor"]
'#17181A'
"""

from dataclasses import dataclass
from html import unescape
from typing import Any

import plotly.graph_objects as go

from ffnprobe.views.theme import BLACK, BLUE, DIVERGING, GREY, TEMPLATE, VERMILLION

INK, PAPER, GRID = "#E8E8E6", "#17181A", "#33363A"
# Zero has the colour of the background, as it does on white.
_STEPS = ("#FFC08A", VERMILLION, "#24262A", BLUE, "#8CCBF2")
DARK_DIVERGING = tuple((at, dark) for (at, _), dark in zip(DIVERGING, _STEPS, strict=True))
_SWAPS = {BLACK: INK, GREY: "#9A9A9A", BLUE: "#3D9BDC", "white": PAPER, "#FFFFFF": PAPER}
# Keys that hold the data of a figure; the others hold its style.
_DATA = frozenset(("x", "y", "z", "text", "customdata", "ticktext", "tickvals", "hovertemplate"))


@dataclass(frozen=True)
class Screen:
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
    layout["template"] = _template(is_dark=is_dark)
    data = [dict(trace) for trace in drawn["data"]]
    if is_narrow:
        _squeeze(layout, data)
    if is_dark:
        layout = _darken(layout)
        data = [_darken(trace) for trace in data]
    return Screen(
        title=_plain(title.get("text")),
        note=_plain(title.get("subtitle", {}).get("text")),
        figure={"data": data, "layout": layout},
        height=height,
    )


def _plain(text: str | None) -> str:
    """Undo the escaping for plotly."""
    return unescape((text or "").replace("<br>", " "))


def _template(*, is_dark: bool) -> dict[str, Any]:
    template: dict[str, Any] = TEMPLATE.to_plotly_json()
    if is_dark:
        look = template["layout"] = _darken(template["layout"])
        for axis in ("xaxis", "yaxis"):
            look[axis] = {**look[axis], "gridcolor": GRID}
        look |= {"legend": {"bgcolor": "rgba(0,0,0,0)"}, "shapedefaults": {"line": {"color": INK}}}
    return template


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

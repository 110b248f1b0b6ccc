"""Figures of results: `plot` draws one as a plotly Figure and never shows it.

Each file has one family of figures. `draws` names a figure where it is defined; only the file that draws a
result's type is loaded.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

import pandas as pd
import plotly.graph_objects as go

from ffnprobe.arguments import verb
from ffnprobe.errors import DataRefused, OptionRefused
from ffnprobe.results import Result, TableSet

# The file that draws the results of a type.
FILES = {
    "Trace": "predictions", "Lens": "predictions", "Stages": "predictions",
    "Similarity": "predictions", "Drivers": "predictions", "Pushes": "pushes", "Paths": "pushes",
    "PushesByPiece": "pushes", "Comparison": "effects", "Effects": "effects",
    "LayerEffects": "effects", "GroupEffects": "effects", "Estimates": "effects",
    "Patches": "effects", "LayerPatches": "effects", "Circuit": "circuits", "Recovery": "circuits",
    "Steering": "predictions", "Reading": "neurons", "Readings": "neurons", "Survey": "neurons",
    "Search": "neurons", "Match": "neurons", "Scores": "facts", "Relations": "facts",
    "Overlap": "facts", "Specificity": "facts", "Scan": "neurons", "Examples": "neurons",
    "Edited": "facts", "Certificate": "facts", "Labels": "neurons", "Explanation": "effects",
}  # fmt: skip

Draw = TypeVar("Draw", bound=Callable[..., Any])


class Drawing(NamedTuple):
    """How a figure is drawn, and whether only if asked for: it needs more than the result."""

    draw: Callable[..., Any]
    is_asked: bool


DRAWN: dict[str, dict[str, Drawing]] = {}


def draws(figure: str, *types: str, is_asked: bool = False) -> Callable[[Draw], Draw]:
    """Name a function's figure and the types of its results; a type's first figure is drawn by default."""

    def register(draw: Draw) -> Draw:
        for name in types:
            DRAWN.setdefault(name, {})[figure] = Drawing(draw, is_asked)
        return draw

    return register


def find_figures(name: str) -> Mapping[str, Drawing]:
    """Load the file that draws results of this type, and return their figures in its order."""
    import_module(f"{__name__}.{FILES[name]}")
    return DRAWN[name]


@verb
def plot(result: Any, figure: str | None = None, **options: Any) -> go.Figure:
    """Draw a result's first figure, or the one named; options go to the figure.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> fp.plot(fp.attribute(trace, " basketball")).layout.title.text
    'The neurons of L6 push most, away from ␣basketball (-2.29)'
    """
    figures = _figures_of(result)
    name = next(iter(figures)) if figure is None else figure
    if name not in figures:
        why = f'{type(result).__name__} has no figure "{name}".'
        raise OptionRefused(why, remedy=", ".join(figures))
    return figures[name].draw(result, **options)


def plot_all(result: Any) -> list[go.Figure]:
    """Draw all figures of a result that need nothing else."""
    try:
        figures = _figures_of(result)
    except DataRefused:
        return []
    drawn = []
    for figure in figures.values():
        if not figure.is_asked:
            try:
                drawn.append(figure.draw(result))
            except OptionRefused:  # the result was asked for without what this figure shows
                continue
    return drawn


def _figures_of(result: Any) -> Mapping[str, Drawing]:
    name = type(result).__name__
    if isinstance(result, Result) and name in FILES:
        return find_figures(name)
    if isinstance(result, TableSet | pd.DataFrame):
        why = "there is no figure for a table by itself."
        raise DataRefused(why, remedy="the result it was taken from")
    raise DataRefused(f"there is no figure for {name}.", remedy=", ".join(FILES))

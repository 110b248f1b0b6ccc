"""Draw a result: `plot` returns a plotly Figure and never shows it.

Each result has a figure of its own, the first in its file of `figures`; further ones are asked for by name.

>>> import ffnprobe as fp
>>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
>>> figure = fp.plot(fp.attribute(trace, " basketball"), "account")
>>> figure.data[0].type
'waterfall'
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from ffnprobe.arguments import verb
from ffnprobe.errors import DataRefused, OptionRefused
from ffnprobe.results import Result, TableSet
from ffnprobe.views.figures import FILES, Drawing, find_figures


@verb
def plot(result: Any, figure: str | None = None, **options: Any) -> go.Figure:
    """Draw a result's first figure, or the one named; options go to the figure.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> fp.plot(fp.attribute(trace, " basketball")).layout.title.text
    'The neurons of L6 push most, away from ␣basketball (-2.29)'
    """
    known = _find(result)
    name = next(iter(known)) if figure is None else figure
    if name not in known:
        raise OptionRefused(
            f'{type(result).__name__} has no figure "{name}".', remedy=", ".join(known)
        )
    return known[name].draw(result, **options)


def plot_all(result: Any) -> list[go.Figure]:
    """Draw all figures of a result that need nothing else."""
    try:
        known = _find(result)
    except DataRefused:
        return []
    figures = []
    for figure in known.values():
        if not figure.is_asked:
            try:
                figures.append(figure.draw(result))
            except OptionRefused:  # the result was asked for without what this figure shows
                continue
    return figures


def _find(result: Any) -> Mapping[str, Drawing]:
    """Find the figures of a result, by its type."""
    name = type(result).__name__
    if isinstance(result, Result) and name in FILES:
        return find_figures(name)
    if isinstance(result, TableSet | pd.DataFrame):
        raise DataRefused(
            "there is no figure for a table by itself.", remedy="the result it was taken from"
        )
    raise DataRefused(f"there is no figure for {name}.", remedy=", ".join(FILES))

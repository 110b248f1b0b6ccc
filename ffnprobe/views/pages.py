"""Several figures in one HTML file that needs nothing else, not even a network."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

import plotly.graph_objects as go

from ffnprobe.files import write_whole
from ffnprobe.views.theme import FONT

_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>body{{font-family:{font};margin:2em auto;max-width:1000px;color:#222}}</style></head>
<body><h1>{title}</h1>
"""


def save_figures(figures: Sequence[go.Figure], path: Path, *, title: str) -> None:
    """Write figures one below the other, whole or not at all; plotly itself is inside, once."""
    parts = [_HEAD.format(title=escape(title), font=FONT)]
    for order, figure in enumerate(figures):
        parts.append(_block(figure, order))
    write_whole(path, "\n".join([*parts, "</body></html>", ""]).encode())


def _block(figure: go.Figure, order: int) -> str:
    # A fixed name in place of a random one: the same figures give the same bytes.
    html: str = figure.to_html(
        full_html=False, include_plotlyjs=order == 0, div_id=f"figure-{order + 1}"
    )
    return html

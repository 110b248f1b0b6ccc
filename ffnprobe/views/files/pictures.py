"""Figures as files: .html, which any browser opens without a network, or .png, which kaleido draws."""

import importlib.util
from collections.abc import Sequence
from html import escape
from pathlib import Path

import plotly.graph_objects as go

from ffnprobe.errors import FileNotWritten
from ffnprobe.files import check_writable, write_whole
from ffnprobe.views.theme import FONT

SUFFIXES = (".html", ".png")
_SHARPNESS = 2
_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>body{{font-family:{font};margin:2em auto;max-width:1000px;color:#222}}</style></head>
<body><h1>{title}</h1>
"""


def check_picture(path: Path) -> None:
    """Refuse a file that cannot be written before the work begins."""
    if path.suffix.lower() not in SUFFIXES:
        raise FileNotWritten(
            f'"{path.suffix}" is not a format that figures are written in ({path.name}).',
            remedy=", ".join(SUFFIXES),
        )
    check_writable(path)
    if path.suffix.lower() == ".png" and not has_kaleido():
        raise FileNotWritten(
            "a .png needs the package kaleido, which is not installed.",
            remedy=f"pip install kaleido, or --plot {path.with_suffix('.html')}",
        )


def has_kaleido() -> bool:
    """Say whether kaleido is installed."""
    return importlib.util.find_spec("kaleido") is not None


def save_figure(figure: go.Figure, path: Path) -> None:
    """Write a figure to a .html or .png file, whole or not at all."""
    check_picture(path)
    if path.suffix.lower() == ".html":
        save_figures([figure], path, title=path.stem)
        return
    try:
        size = {"width": figure.layout.width, "height": figure.layout.height}
        data = figure.to_image(format="png", scale=_SHARPNESS, **size)
    except Exception as error:  # kaleido raises what its browser raises
        raise FileNotWritten(
            f"kaleido could not draw {path.name}: {str(error).strip().splitlines()[0]}",
            remedy=f"install Chrome or Chromium, or write {path.with_suffix('.html').name}",
        ) from None
    write_whole(path, data)


def save_figures(figures: Sequence[go.Figure], path: Path, *, title: str) -> None:
    """Write figures one below the other into a page that contains plotly, whole or not at all."""
    parts = [_HEAD.format(title=escape(title), font=FONT)]
    for order, figure in enumerate(figures):
        parts.append(_block(figure, order))
    write_whole(path, "\n".join([*parts, "</body></html>", ""]).encode())


def _block(figure: go.Figure, order: int) -> str:
    # A fixed name instead of a random one: the same figures give the same bytes.
    html: str = figure.to_html(
        full_html=False, include_plotlyjs=order == 0, div_id=f"figure-{order + 1}"
    )
    return html

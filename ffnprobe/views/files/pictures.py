"""Figures as files: .html, which any browser opens without a network, or .png, which kaleido draws."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import plotly.graph_objects as go

from ffnprobe.errors import FileNotWritten
from ffnprobe.files import check_writable, write_whole
from ffnprobe.views.page import figure_html, wrap

SUFFIXES = (".html", ".png")
_SHARPNESS = 2


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
    write_whole(path, wrap(title, "".join(map(figure_html, figures))).encode())

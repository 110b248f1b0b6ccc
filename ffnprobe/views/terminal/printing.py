"""Tables in the terminal: as wide as it is, names and numbers whole; nothing is left out when piped."""

import sys

import pandas as pd
from rich.console import Console
from rich.text import Text

from ffnprobe.layout import UNLIMITED, find_width, write_grid, write_table
from ffnprobe.results import hide_numbers
from ffnprobe.views.files.formats import Tables


def console() -> Console:
    """Write to stdout: as wide as the terminal or COLUMNS say, or as wide as needed."""
    return Console(file=sys.stdout, width=find_width(), highlight=False)


def print_tables(
    tables: Tables, *, title: str = "", most: int | None = None, note: str = ""
) -> None:
    """Print each table, under its name if there are several, and below them how to read them.

    In a terminal `most` rows of each.
    """
    out = console()
    if title and len(tables) > 1:
        out.print(Text(title, style="bold"))
    for name, frame in tables.items():
        limit = len(frame) if most is None or out.width == UNLIMITED else most
        text = write_table(hide_numbers(frame.head(limit)), width=out.width)
        heading = title if title and len(tables) == 1 else name
        _print(out, "" if title and heading == "rows" else heading, text)
        if limit < len(frame):
            left = f"the first {limit} of {len(frame):,} rows"
            out.print(Text(f"{left}; all of them: --format csv, or --out FILE.csv", style="dim"))
    if note:
        out.print(Text(note, style="dim"))


def print_grid(title: str, frame: pd.DataFrame, *, note: str = "") -> None:
    """Print a table of which no column may be left out."""
    out = console()
    _print(out, title, write_grid(frame, width=out.width))
    if note:
        out.print(Text(note, style="dim"))


def _print(out: Console, heading: str, text: str) -> None:
    if heading:
        out.print(Text(heading, style="bold"))
    out.print(Text(f"\n{text}\n"), soft_wrap=True)

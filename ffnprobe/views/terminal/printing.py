"""Tables in the terminal, by rich: numbers right, tokens left, nothing cut when piped."""

import sys
from typing import Any

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ffnprobe.cells import format_value
from ffnprobe.views.files.formats import Tables


def console() -> Console:
    """Write to stdout: as wide as the terminal, or as wide as needed if there is none."""
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else 400, highlight=False)


def print_tables(tables: Tables, *, title: str = "") -> None:
    """Print each table under its title."""
    out = console()
    for name, frame in tables.items():
        heading = title if len(tables) == 1 and title else name
        if heading:
            out.print(Text(heading, style="bold"))
        out.print(_table(frame))


def _table(frame: pd.DataFrame) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in frame.columns:
        is_number = pd.api.types.is_numeric_dtype(frame[column])
        table.add_column(column.replace("_", " "), justify="right" if is_number else "left")
    for row in frame.itertuples(index=False):
        table.add_row(*(Text(_show(value)) for value in row))
    return table


def _show(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10_000:
        return f"{value:,}"
    return format_value(value)

"""Documents in the terminal: as wide as it is, names and numbers whole; nothing is left out when piped."""

import sys
from collections.abc import Iterable, Mapping

import pandas as pd
from rich.console import Console
from rich.text import Text

from ffnprobe.documents.blocks import Block, Table, Words
from ffnprobe.documents.html import ABOVE, BELOW
from ffnprobe.documents.text import write_lines
from ffnprobe.layout import find_width

REST = "; all of them: --format csv, or --out FILE.csv"
STYLES = {
    "plain": "", "strong": "bold", "soft": "dim", "above": f"bold rgb({ABOVE})", "below": f"bold rgb({BELOW})",
}  # fmt: skip


def print_document(
    title: str, blocks: Iterable[Block], *, most: int | None = None, is_full: bool = False
) -> None:
    """Print a title and what is read first, or all of it; in a terminal `most` rows of a table."""
    width = find_width()
    out = Console(file=sys.stdout, width=width, highlight=False)
    for line in write_lines(title, blocks, width=width, most=most, rest=REST, is_full=is_full):
        pieces = [(text, STYLES[tone]) for text, tone in line]
        # A table is as wide as it is; a quotation has several pieces, and is wrapped.
        out.print(Text.assemble(*pieces), soft_wrap=len(pieces) == 1)


def print_tables(tables: Mapping[str, pd.DataFrame], *, title: str = "", note: str = "") -> None:
    """Print each table, under its name if there are several, and below them how to read them."""
    named = [Table(frame, name) for name, frame in tables.items()]
    print_document(title, [*named, Words(note, "soft")])

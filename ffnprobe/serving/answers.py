"""A result as a compact answer: its first rows, what they are worth, where they are from.

Of the first table `rows` rows are sent; what is left of it, and every other table, is fetched by a cursor.
Numbers have five significant digits, which is more than they are worth; files hold them all.
"""

import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ffnprobe.cache import LRUCache
from ffnprobe.cells import is_null
from ffnprobe.documents.blocks import Table
from ffnprobe.errors import OptionRefused
from ffnprobe.provenance import Provenance
from ffnprobe.results import Result

if TYPE_CHECKING:
    import pandas as pd

DIGITS = 5
LONGEST_CELL = 300
KEPT = 64
KEPT_BYTES = 256 * 2**20
Answer = dict[str, Any]


class Found(NamedTuple):
    """What a tool found: a result, what is shown of it, what is said beside it."""

    result: Result
    tables: "Mapping[str, pd.DataFrame]"
    notes: Sequence[str] = ()
    provenance: Provenance | None = None  # if it is not the result's own


class Answers:
    """Write answers, and keep the last of them so that cursors can be followed."""

    def __init__(self) -> None:
        self._kept = LRUCache(most=KEPT, most_bytes=KEPT_BYTES)

    def write(self, found: Found, *, grade: str, rows: int) -> Answer:
        """Write what was found as a compact answer."""
        result, key = found.result, secrets.token_urlsafe(9)
        about = {
            "title": result.headline,
            "grade": getattr(result, "graded", grade),
            "how_to_read": result.caption,
            "provenance": (found.provenance or result.provenance).as_dict(),
        }
        # A cursor leads back to tables, not to the trace and the model they were made from.
        tables = {name: Table(table).shown for name, table in found.tables.items()}
        size = sum(int(table.memory_usage(deep=True).sum()) for table in tables.values())
        self._kept.put(key, (about, tables), size)
        first, *others = tables
        answer = self.follow(f"{key}.{first}.0", rows=rows)
        if others:
            answer["more_tables"] = {
                name: {"rows": len(tables[name]), "cursor": f"{key}.{name}.0"} for name in others
            }
        return answer | ({"notes": list(found.notes)} if found.notes else {})

    def follow(self, cursor: str, *, rows: int) -> Answer:
        """Write the next rows that a cursor leads to."""
        key, _, rest = cursor.partition(".")
        name, _, start = rest.rpartition(".")
        held: tuple[Answer, dict[str, pd.DataFrame]] = self._kept.get(key) or ({}, {})
        about, tables = held
        if name not in tables or not start.isdecimal():
            raise OptionRefused(
                f'the cursor "{cursor[:40]}" leads nowhere (any more).',
                remedy="ask the question again",
            )
        table, end = tables[name], int(start) + rows
        part = table.iloc[int(start) : end]
        return {
            **about,
            "table": name,
            "columns": [str(column) for column in table.columns],
            "rows": [[_plain(value) for value in row] for row in part.itertuples(index=False)],
            "rows_in_all": len(table),
            "cursor": f"{key}.{name}.{end}" if end < len(table) else None,
        }


def _plain(value: Any) -> Any:
    """Turn a cell into plain JSON: few digits, short texts, null where there is nothing."""
    if is_null(value):
        return None
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, str):
        return value if len(value) <= LONGEST_CELL else f"{value[:LONGEST_CELL]}…"
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value.item() if hasattr(value, "item") else value

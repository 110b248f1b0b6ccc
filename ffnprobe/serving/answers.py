"""A result as a compact answer: its first rows, what they are worth, where they are from.

Of the first table `rows` rows are sent; what is left of it, and every other table, is fetched by a cursor.
Numbers have five significant digits, which is more than they are worth; files hold them all.
"""

import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ffnprobe.cells import is_missing
from ffnprobe.errors import OptionRefused
from ffnprobe.evidence.explanation import Explanation
from ffnprobe.models.provenance import Provenance
from ffnprobe.results import Result, hide_numbers
from ffnprobe.views.explorer.cache import LRUCache

if TYPE_CHECKING:
    import pandas as pd

DIGITS = 5
LONGEST_CELL = 300
KEPT = 64
KEPT_BYTES = 256 * 2**20
Answer = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Found:
    """What a tool found: a result, and its tables if they are not the result's own."""

    result: Result
    tables: "Mapping[str, pd.DataFrame] | None" = None
    title: str | None = None


@dataclass(frozen=True, eq=False)
class Shown:
    """What a cursor leads back to: tables without the trace and the model they were made from."""

    title: str
    how_to_read: str
    grade: str
    tables: "Mapping[str, pd.DataFrame]"
    provenance: Provenance

    @property
    def nbytes(self) -> int:
        """How much memory the tables take."""
        return sum(int(table.memory_usage(deep=True).sum()) for table in self.tables.values())


class Answers:
    """Write answers, and keep the last of them so that cursors can be followed."""

    def __init__(self) -> None:
        self._kept = LRUCache(most=KEPT, most_bytes=KEPT_BYTES)

    def write(self, found: Result | Found, *, grade: str, rows: int, notes: list[str]) -> Answer:
        """Write a result as a compact answer."""
        whole = found if isinstance(found, Found) else Found(found)
        result = whole.result
        tables = result.tables() if whole.tables is None else whole.tables
        title = result.title if whole.title is None else whole.title
        if isinstance(result, Explanation) and result.verdict:
            title = f"{title}. {' '.join(result.verdict)}"
        shown = Shown(
            title, result.caption,
            count_grades(result) or grade, {n: hide_numbers(t) for n, t in tables.items()},
            result.provenance,
        )  # fmt: skip
        key = secrets.token_urlsafe(9)
        self._kept.put(key, shown, shown.nbytes)
        answer = self._page(key, shown, next(iter(shown.tables)), 0, rows)
        others = {
            name: {"rows": len(table), "cursor": f"{key}.{name}.0"}
            for name, table in list(shown.tables.items())[1:]
        }
        return (
            answer
            | ({"more_tables": others} if others else {})
            | ({"notes": notes} if notes else {})
        )

    def follow(self, cursor: str, *, rows: int) -> Answer:
        """Write the next rows that a cursor leads to."""
        key, _, rest = cursor.partition(".")
        name, _, start = rest.rpartition(".")
        shown: Shown | None = self._kept.get(key)
        if shown is None or name not in shown.tables or not start.isdecimal():
            raise OptionRefused(
                f'the cursor "{cursor[:40]}" leads nowhere (any more).',
                remedy="ask the question again",
            )
        return self._page(key, shown, name, int(start), rows)

    def _page(self, key: str, shown: Shown, name: str, start: int, rows: int) -> Answer:
        table = shown.tables[name]
        part, end = table.iloc[start : start + rows], start + rows
        return {
            "title": shown.title,
            "grade": shown.grade,
            "how_to_read": shown.how_to_read,
            "table": name,
            "columns": [str(column) for column in table.columns],
            "rows": [[_plain(value) for value in row] for row in part.itertuples(index=False)],
            "rows_in_all": len(table),
            "cursor": f"{key}.{name}.{end}" if end < len(table) else None,
            "provenance": shown.provenance.as_dict(),
        }


def count_grades(result: Result) -> str:
    """Count the grades of an explanation; nothing for another result."""
    if not isinstance(result, Explanation):
        return ""
    found = result.neurons.grade.str[:1].value_counts()
    counts = [f"{letter} {found[letter]}" for letter in ("A", "B", "C") if letter in found]
    return (
        f"{', '.join(counts) or 'none'} of {len(result.neurons)} neurons; a grade counts kinds of "
        "evidence (weights, push, effect) and is not a location"
    )


def _plain(value: Any) -> Any:
    """Turn a cell into plain JSON: few digits, short texts, null where there is nothing."""
    if is_missing(value) or (isinstance(value, float) and math.isinf(value)):
        return None
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, str):
        return value if len(value) <= LONGEST_CELL else f"{value[:LONGEST_CELL]}…"
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value.item() if hasattr(value, "item") else value

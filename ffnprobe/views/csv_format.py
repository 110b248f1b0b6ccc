"""csv that is safe in a spreadsheet and reads back to the same table.

The first line names the columns, so that a plain `pandas.read_csv` opens the file. The last column,
`provenance`, holds in its first row the provenance, the columns' types and the file's checksum as JSON.
Every text is in quotes. A text that a spreadsheet would take for a formula or a number, or pandas for a
missing value, has an apostrophe in front, and so has one that begins with an apostrophe. A spreadsheet that
cuts lines at semicolons, as in many countries, may begin a cell in the middle of a text: there, too, an
apostrophe stands in front of a formula. `read_csv` removes all of them; with pandas alone it is

    pandas.read_csv("jordan.csv").replace(UNGUARD, "", regex=True)

which reads an empty text as a missing value. A text that is missing is written `NA`, a number that is
missing as an empty cell. In the provenance, what could begin a formula or turn the direction of
writing is written as `\\u003d`: a spreadsheet may cut it into cells, too.

>>> [guard(text) for text in ("=1+1", "␣=", "007", "null", "'s", "a;=1")]
["'=1+1", '␣=', "'007", "'null", "''s", "a;'=1"]
"""

import csv
import io
import json
import re
from collections.abc import Callable, Sequence

import pandas as pd
from pandas.api.types import is_numeric_dtype

from ffnprobe.errors import DataRefused
from ffnprobe.layout import is_missing
from ffnprobe.results import TableSet

# Characters that begin a formula, in both widths.
_FORMULA = "=+\\-@＝＋－＠"
_GUARDED = re.compile(rf"\s*[{_FORMULA}'.\d]")
# Where a cell may begin inside of a text if the file is cut at other signs than commas.
_INSIDE = rf"(?<=[;|\t\r\n]){{}}(?=[\s\"']*[{_FORMULA}])"
UNGUARD = "^'|" + _INSIDE.format("'")
_BEFORE_FORMULA = re.compile(_INSIDE.format(""))
# Words that pandas reads as missing, or spreadsheets as true or false.
_WORDS = {"na", "n/a", "nan", "null", "none", "<na>", "#n/a", "#na", "inf", "true", "false"}
MISSING = "NA"
PROVENANCE = "provenance"
# In the provenance: what ends it, a backslash, half a character, what turns the direction of writing or cannot be
# seen, and a formula's sign at the start of a cell.
_TURNS = "\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff"
_UNSAFE = re.compile(
    rf"[\x00-\x1f\x7f-\x9f\\\u2028\u2029\ud800-\udfff{_TURNS}]|(?<=[,;|\"'\s])[{_FORMULA}]"
)
# Python's own numbers are exact; a reader of csv may round the last digit.
_NUMBERS: dict[str, Callable[[str], object]] = {
    "int64": int, "Int64": int, "float64": float,
    "bool": lambda cell: {"true": True, "false": False}[cell.lower()],  # a spreadsheet writes TRUE
}  # fmt: skip
_ESCAPED = re.compile(r"\\u([0-9a-f]{4})")


def guard(text: str) -> str:
    """Write an apostrophe before a text, or a piece of one, that would not stay a text."""
    needs = _GUARDED.match(text) or text.strip().lower() in _WORDS
    return ("'" if needs else "") + _BEFORE_FORMULA.sub("'", text)


def unguard(text: str) -> str:
    return re.sub(UNGUARD, "", text)


def write_csv(result: TableSet, **more: str) -> str:
    """Write the first table; in the first row of a last column the provenance, the types, and what is more."""
    table = result.table
    types = [*map(str, table.dtypes)]
    about = {"provenance": result.provenance.as_dict(), "types": types, "rows": len(table), **more}
    guarded = table.reset_index(drop=True)
    for number, column in enumerate(table.columns):
        if not is_numeric_dtype(table[column]):
            cells = [guard(value) if isinstance(value, str) else value for value in table[column]]
            guarded.isetitem(number, [MISSING if is_missing(cell) else cell for cell in cells])
    guarded.columns = pd.Index([guard(str(name)) for name in table.columns])
    if table.empty:  # a row for the provenance; its number of rows says so
        guarded = guarded.astype(object).reindex([0])
    # A space is prepended so that a character at the start of a value counts as the start of a cell.
    text = f" {json.dumps(about, ensure_ascii=False)}"
    escaped = _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)[1:]
    last = [escaped] + [""] * (len(guarded) - 1)
    guarded.insert(len(guarded.columns), PROVENANCE, last, allow_duplicates=True)
    return guarded.to_csv(index=False, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)


def read_csv(text: str) -> tuple[pd.DataFrame, dict[str, object]]:
    """Read such a csv back: the table, and what its provenance was."""
    heads, *rows = csv.reader(io.StringIO(text, newline=""))
    if not rows or heads[-1] != PROVENANCE:
        raise DataRefused(f"its last column is not called {PROVENANCE}")
    about = json.loads(_ESCAPED.sub(lambda match: chr(int(match[1], 16)), rows[0][-1]))
    if unknown := set(about) - {"provenance", "types", "rows", "checksum"}:
        raise DataRefused(f"its {PROVENANCE} has a field {min(unknown)!r}")
    rows = rows if about["rows"] else []
    cells = list(zip(*rows, strict=True)) if rows else [()] * len(heads)
    columns = zip(heads[:-1], about["types"], cells[: len(heads) - 1], strict=True)
    table = pd.DataFrame({unguard(head): _column(cells, kind) for head, kind, cells in columns})
    return table, about["provenance"]


def _column(cells: Sequence[str], kind: str) -> pd.Series:
    """Restore the cells of a column; an empty cell is a missing number or an empty text."""
    missing, read = ("", _NUMBERS[kind]) if kind in _NUMBERS else (MISSING, unguard)
    return pd.Series([None if cell == missing else read(cell) for cell in cells], dtype=kind)

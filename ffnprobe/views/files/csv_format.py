"""csv that is safe in a spreadsheet and reads back to the same table.

Lines that begin with `#` above the table hold the provenance and the columns' types. Every
text is in quotes. A text that a spreadsheet would take for a formula or a number, or pandas for a
missing value, has an apostrophe in front, and so has one that begins with an apostrophe: removing one
from every text that has one restores all texts. `read_csv` does this; pandas alone needs

    pandas.read_csv("jordan.csv", comment="#").replace("^'", "", regex=True)

and reads an empty text as a missing value. A text that is missing is written `NA`, a number that is
missing as an empty cell. In the lines above the table, what could begin a formula or turn the
direction of writing is written as `\\u003d`: a spreadsheet may cut these lines into cells, too.

>>> [guard(text) for text in ("=1+1", "␣=", "007", "null", "'s")]
["'=1+1", '␣=', "'007", "'null", "''s"]
"""

import csv
import io
import json
import re
from collections.abc import Callable, Sequence

import pandas as pd
from pandas.api.types import is_numeric_dtype

from ffnprobe.cells import is_missing
from ffnprobe.models.provenance import Provenance

# Characters that begin a formula, in both widths.
_FORMULA = "=+\\-@＝＋－＠"
_GUARDED = re.compile(rf"\s*[{_FORMULA}'.\d]")
# Words that pandas reads as missing, or spreadsheets as true or false.
_WORDS = frozenset(
    ("na", "n/a", "nan", "null", "none", "<na>", "#n/a", "#na", "inf", "true", "false")
)
MISSING = "NA"
# In a line above the table: what ends it, a backslash, half a character, what turns the direction of writing or cannot be
# seen, and a formula's sign at the start of a cell.
_TURNS = "\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff"
_UNSAFE = re.compile(
    rf"[\x00-\x1f\x7f-\x9f\\\u2028\u2029\ud800-\udfff{_TURNS}]|(?<=[,;|\"'\s])[{_FORMULA}]"
)
# Python's own numbers are exact; a reader of csv may round the last digit.
_NUMBERS: dict[str, Callable[[str], object]] = {
    "int64": int, "Int64": int, "float64": float, "bool": "True".__eq__,
}  # fmt: skip
_ESCAPED = re.compile(r"\\u([0-9a-f]{4})")


def guard(text: str) -> str:
    """Prepend an apostrophe to a text that would not stay a text."""
    needs = _GUARDED.match(text) or text.strip().lower() in _WORDS
    return f"'{text}" if needs else text


def unguard(text: str) -> str:
    """Remove the apostrophe."""
    return text.removeprefix("'")


def write_csv(table: pd.DataFrame, provenance: Provenance) -> str:
    """Write the provenance, the columns' types and the table."""
    lines = [f"{name}: {_line(value)}" for name, value in provenance.as_dict().items()]
    types = " ".join(str(kind) for kind in table.dtypes)
    head = "".join(f"# {line}\n" for line in [*lines, f"types: {types}"])
    guarded = table.copy()
    for number, column in enumerate(table.columns):
        if not is_numeric_dtype(table[column]):
            guarded.isetitem(number, [_text(value) for value in table[column]])
    guarded.columns = pd.Index([guard(str(name)) for name in table.columns])
    return head + guarded.to_csv(index=False, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)


def _text(value: object) -> object:
    if isinstance(value, str):
        return guard(value)
    return MISSING if is_missing(value) else value


def read_csv(text: str) -> tuple[pd.DataFrame, dict[str, object]]:
    """Read such a csv back: the table, and what its provenance was."""
    known: dict[str, str] = {}
    while text.startswith("# "):
        line, _, text = text.partition("\n")
        name, _, value = line[2:].partition(": ")
        known[name] = value
    heads, *rows = csv.reader(io.StringIO(text, newline=""))
    cells = list(zip(*rows, strict=True)) if rows else [()] * len(heads)
    columns = zip(heads, known.pop("types").split(" "), cells, strict=True)
    table = pd.DataFrame({unguard(head): _column(cells, kind) for head, kind, cells in columns})
    return table, {name: _value(name, value) for name, value in known.items()}


def _column(cells: Sequence[str], kind: str) -> pd.Series:
    """Restore the cells of a column; an empty cell is a missing number or an empty text."""
    if kind not in _NUMBERS:
        texts = [None if cell == MISSING else unguard(cell) for cell in cells]
        return pd.Series(texts, dtype=kind)
    number = _NUMBERS[kind]
    return pd.Series([number(cell) if cell else None for cell in cells], dtype=kind)


def _line(value: object) -> str:
    """Write a value on one line; a space within a token is escaped, since tokens are set apart by one."""
    if isinstance(value, dict):
        return _escape(json.dumps(value, ensure_ascii=False))
    if isinstance(value, list):
        return " ".join(_escape(str(token)).replace(" ", "\\u0020") for token in value)
    return _escape(str(value))


def _escape(text: str) -> str:
    # A space is prepended so that a character at the start of a value counts as the start of a cell.
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", f" {text}")[1:]


def _value(name: str, text: str) -> object:
    if name == "tokens":
        return [_unescape(token) for token in text.split(" ")]
    whole = _unescape(text)
    if name in ("source", "settings"):
        return json.loads(whole)
    if name == "bos":
        return whole == "True"
    return int(whole) if name == "position" else whole


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)

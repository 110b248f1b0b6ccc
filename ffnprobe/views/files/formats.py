"""Tables as csv, json, md and parquet, each with its provenance inside.

csv begins with `# name: value` lines (see `csv_format`); json is one object with `provenance` and
`rows`, or one key per table; md ends in the provenance; parquet keeps it in the file's metadata.
"""

import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ffnprobe.cells import format_value, is_missing
from ffnprobe.errors import FileNotWritten
from ffnprobe.files import check_writable
from ffnprobe.models.provenance import Provenance
from ffnprobe.views.files.csv_format import write_csv

Tables = Mapping[str, pd.DataFrame]


def to_csv(tables: Tables, provenance: Provenance) -> str:
    """Write the first table with its provenance in `#` lines above it."""
    return write_csv(_first(tables), provenance)


def to_json(tables: Tables, provenance: Provenance) -> str:
    """Write one object: provenance, and the rows of the one table or each table under its name."""
    rows = {
        name: [_plain(row) for row in frame.to_dict("records")] for name, frame in tables.items()
    }
    body = {"rows": next(iter(rows.values()))} if len(rows) == 1 else rows
    return (
        json.dumps({"provenance": provenance.as_dict(), **body}, ensure_ascii=False, indent=1)
        + "\n"
    )


def to_md(tables: Tables, provenance: Provenance) -> str:
    """Write every table as Markdown, the provenance below."""
    parts = []
    for name, frame in tables.items():
        title = [f"### {name}", ""] if len(tables) > 1 else []
        head = [" | ".join(frame.columns), " | ".join("---" for _ in frame.columns)]
        body = [" | ".join(_cell(value) for value in row) for row in frame.itertuples(index=False)]
        parts.append("\n".join([*title, *(f"| {line} |" for line in [*head, *body])]))
    parts.append("\n".join(f"- {_escape(line)}" for line in provenance.as_lines()))
    return "\n\n".join(parts) + "\n"


def to_parquet(tables: Tables, provenance: Provenance) -> bytes:
    """Write the first table with its types; the provenance is in the file's metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pandas(_first(tables), preserve_index=False)
    note = json.dumps(provenance.as_dict(), ensure_ascii=False)
    table = table.replace_schema_metadata(
        {**(table.schema.metadata or {}), b"ffnprobe": note.encode()}
    )
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


TEXTS: dict[str, Callable[[Tables, Provenance], str]] = {
    "csv": to_csv,
    "json": to_json,
    "md": to_md,
}
SUFFIXES = (".csv", ".json", ".parquet", ".md", ".html")


def check_target(path: Path, suffixes: Sequence[str] = SUFFIXES) -> None:
    """Refuse an unknown suffix or a missing folder before the work begins."""
    if path.suffix.lower() not in suffixes:
        raise FileNotWritten(
            f'"{path.suffix}" is not a format for results ({path.name}).',
            remedy=", ".join(suffixes),
        )
    check_writable(path)


def name_unwritten(tables: Tables, path: Path) -> str:
    """Name the tables that a one-table file leaves out, if any."""
    _, *others = tables
    if not others or path.suffix.lower() not in (".csv", ".parquet"):
        return ""
    return f" (the first table; .json, .md and .html also hold {', '.join(others)})"


def _first(tables: Tables) -> pd.DataFrame:
    return next(iter(tables.values()))


def _plain(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Turn a row into plain json values: missing and infinite are null."""
    return {str(name): None if _is_null(value) else value for name, value in row.items()}


def _is_null(value: Any) -> bool:
    return is_missing(value) or (isinstance(value, float) and math.isinf(value))


def _cell(value: Any) -> str:
    return _escape(format_value(value))


def _escape(text: str) -> str:
    """Keep Markdown and HTML from reading a token as markup."""
    for letter, name in {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;", "`": "&#96;",
                         "*": "&#42;", "_": "&#95;", "[": "&#91;", "\\": "&#92;", "\n": " "}.items():  # fmt: skip
        text = text.replace(letter, name)
    return text

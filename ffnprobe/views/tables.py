"""Tables to text and to files: csv, json, md and parquet, each with its provenance inside.

csv begins with `# name: value` lines (`pandas.read_csv(file, comment="#")` would cut tokens such
as "#"; use `skiprows`, or `read_csv` of this module); json is one object with `provenance` and
`rows`, or one key per table; md ends in the provenance; parquet keeps it in the file's metadata.
"""

import io
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from ffnprobe.errors import FileNotWritten
from ffnprobe.models.provenance import Provenance
from ffnprobe.views.files import check_writable, write_whole

Tables = Mapping[str, pd.DataFrame]


def to_csv(tables: Tables, provenance: Provenance) -> str:
    """Write the first table with its provenance in `#` lines above it."""
    head = "".join(f"# {line}\n" for line in provenance.as_lines())
    return head + _first(tables).to_csv(index=False, lineterminator="\n")


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
    """Write the first table, types kept, the provenance in the file's metadata."""
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
SUFFIXES = (".csv", ".json", ".md", ".parquet")


def check_target(path: Path) -> None:
    """Say before the work begins if the file's suffix is unknown or its folder is not there."""
    if path.suffix.lower() not in SUFFIXES:
        raise FileNotWritten(
            f'"{path.suffix}" is no format a table is written in ({path.name}).',
            remedy=", ".join(SUFFIXES),
        )
    check_writable(path)


def save_tables(tables: Tables, provenance: Provenance, path: Path) -> None:
    """Write tables to a file whose suffix decides the format, whole or not at all."""
    check_target(path)
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        write_whole(path, to_parquet(tables, provenance))
    else:
        write_whole(path, TEXTS[suffix[1:]](tables, provenance).encode())


def _first(tables: Tables) -> pd.DataFrame:
    return next(iter(tables.values()))


def _plain(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Turn a row into what json has words for: not-a-number is null."""
    return {
        str(name): None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }


def format_value(value: Any) -> str:
    """Show a value in a table: floats to four significant digits, lists joined by spaces."""
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1 else f"{value:.3f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _cell(value: Any) -> str:
    return _escape(format_value(value))


def _escape(text: str) -> str:
    """Keep Markdown and HTML from reading a token as markup."""
    for letter, name in {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;", "`": "&#96;",
                         "*": "&#42;", "_": "&#95;", "[": "&#91;", "\\": "&#92;", "\n": " "}.items():  # fmt: skip
        text = text.replace(letter, name)
    return text

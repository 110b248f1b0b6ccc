"""Tables as csv, json, jsonl, md and parquet, each with its provenance inside.

csv has it in the first row of a last column (see `csv_format`); json is one object with `provenance` and
`rows`, or one key per table; jsonl, for DuckDB, pandas and the shell, has it in its first line; md ends in the
provenance; parquet keeps it in the file's metadata. Files that are read back (csv, json, parquet) have a
checksum of all their bytes next to it (see `files.seal`). In json and jsonl, missing and infinite numbers are null.
"""

import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ffnprobe.errors import FileNotWritten
from ffnprobe.files import BLANK, check_writable, seal
from ffnprobe.layout import format_value, is_null
from ffnprobe.results import Result, TableSet
from ffnprobe.views.csv_format import write_csv

# Room for a file's checksum.
_ROOM = {"checksum": BLANK.decode()}
EXAMPLES = 3
_MARKUP = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;", "`": "&#96;", "*": "&#42;", "_": "&#95;",
     "[": "&#91;", "\\": "&#92;", "\n": " "}
)  # fmt: skip
# An underscore within a word is not markup.
_IN_NAMES = {letter: text for letter, text in _MARKUP.items() if letter != ord("_")}


def to_json(result: TableSet, **more: str) -> str:
    """Write one object: provenance, what the result is, and the rows of each table under its name.

    The rows of a single table are called `rows`.
    """
    named = {"rows": result.table} if len(result.named) == 1 else result.named
    types = {n: {str(c): str(t) for c, t in frame.dtypes.items()} for n, frame in named.items()}
    rows = {name: _plain_rows(frame) for name, frame in named.items()}
    body = more | _describe(result, types=types) | rows
    return json.dumps(body, ensure_ascii=False, indent=1) + "\n"


def to_jsonl(result: Result, written: TableSet) -> str:
    """Write the first table's rows, one a line; of labels with their scan at hand, examples too.

    These are the strongest, each as text with the token in brackets.
    """
    from ffnprobe.corpora.examples import quote, strongest_examples
    from ffnprobe.labels.stored_labels import Labels

    rows = _plain_rows(written.table)
    if isinstance(result, Labels) and result.scan is not None:
        for row in rows:
            examples = strongest_examples(result.scan, row["name"], EXAMPLES)
            row["examples"] = [quote(example) for example in examples]
    if rows:
        rows[0]["provenance"] = written.provenance.as_dict()
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def to_md(result: TableSet) -> str:
    """Write what is said and every table as Markdown, the provenance below."""
    paragraphs = [line.translate(_MARKUP) for line in result.said]
    for name, frame in result.named.items():
        title = f"### {name.translate(_IN_NAMES)}\n\n" if len(result.named) > 1 else ""
        lines = [
            [str(column).translate(_IN_NAMES) for column in frame],
            ["---"] * len(frame.columns),
        ]
        rows = frame.itertuples(index=False)
        lines += [[format_value(value).translate(_MARKUP) for value in row] for row in rows]
        paragraphs.append(title + "\n".join(f"| {' | '.join(line)} |" for line in lines))
    provenance = [f"- {line.translate(_MARKUP)}" for line in result.provenance.as_lines()]
    return "\n\n".join([*paragraphs, "\n".join(provenance)]) + "\n"


def to_parquet(result: TableSet) -> bytes:
    """Write the first table, types kept, the provenance in the file's metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pandas(result.table, preserve_index=False)
    note = encode_text(json.dumps(_ROOM | _describe(result), ensure_ascii=False))
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), b"ffnprobe": note})
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return seal(buffer.getvalue())


def encode_text(text: str) -> bytes:
    """Write text as UTF-8; half a character (of a folder's name, say) as `\\udc80`, which JSON reads back."""
    return text.encode(errors="backslashreplace")


def _describe(result: TableSet, **more: Any) -> dict[str, Any]:
    """Say what the tables are of, so that a reader finds it again."""
    about = {"type": result.kind, "title": result.title, "tables": list(result.named), **more}
    return {"provenance": result.provenance.as_dict(), "result": about}


# What is printed, and what is written to files; those that are read back with their checksum.
TEXTS: dict[str, Callable[[TableSet], str]] = {"csv": write_csv, "json": to_json, "md": to_md}
FILES: dict[str, Callable[[TableSet], bytes]] = {
    ".csv": lambda result: seal(encode_text(write_csv(result, **_ROOM))),
    ".json": lambda result: seal(encode_text(to_json(result, **_ROOM))),
    ".md": lambda result: encode_text(to_md(result)),
    ".parquet": to_parquet,
}
SUFFIXES = (".csv", ".json", ".jsonl", ".parquet", ".md", ".html")


def check_target(path: Path, suffixes: Sequence[str] = SUFFIXES, *, what: str = "results") -> None:
    """Refuse an unknown suffix or a missing folder before the work begins."""
    if path.suffix.lower() not in suffixes:
        raise FileNotWritten(
            f'"{path.suffix}" is not a format that {what} are written in ({path.name}).',
            remedy=", ".join(suffixes),
        )
    check_writable(path)


def name_unwritten(tables: Mapping[str, pd.DataFrame], path: Path) -> str:
    """Name the tables that a one-table file leaves out, if any."""
    _, *others = tables
    if not others or path.suffix.lower() not in (".csv", ".jsonl", ".parquet"):
        return ""
    return f" (the first table; .json, .md and .html also hold {', '.join(others)})"


def _plain_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Turn rows into plain json values: missing and infinite are null."""
    return [
        {str(name): None if is_null(value) else value for name, value in row.items()}
        for row in table.to_dict("records")
    ]

"""Save a result or a figure, and read a result back: the suffix decides the format.

    .csv       the first table, its provenance in the first row of a last column (see `csv_format`)
    .jsonl     the first table for DuckDB, pandas and the shell, the provenance in the first line
    .parquet   the first table, the provenance in the file's metadata
    .json      all tables: one object with `provenance` and `rows`, or one key per table
    .md        all tables, the provenance below
    .html      a page with its figures, its tables and words on how to read them

A file is written whole or not at all. csv, json and parquet are read back; their bytes are compared with the
checksum among them first (see `files.seal`). In json and jsonl, missing and infinite numbers are null.
A figure is written as .html, which any browser opens without a network, or as .png by kaleido.
"""

import io
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from ffnprobe.arguments import verb
from ffnprobe.errors import DataRefused, FfnProbeError, FileNotWritten
from ffnprobe.files import BLANK, atomic_write, check_writable, is_sealed, safe_read, seal
from ffnprobe.layout import format_value, is_null
from ffnprobe.provenance import Provenance
from ffnprobe.results import Result, Tables, TableSet, as_result
from ffnprobe.views.csv_format import read_csv, write_csv

if TYPE_CHECKING:
    import plotly.graph_objects as go

# Room for a file's checksum.
_ROOM = {"checksum": BLANK.decode()}
EXAMPLES = 3
_MARKUP = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;", "`": "&#96;", "*": "&#42;", "_": "&#95;",
     "[": "&#91;", "\\": "&#92;", "\n": " "}
)  # fmt: skip
# An underscore within a word is not markup.
_IN_NAMES = {letter: text for letter, text in _MARKUP.items() if letter != ord("_")}
FIGURES = (".html", ".png")


def to_json(result: TableSet, **more: str) -> str:
    named = {"rows": result.table} if len(result.named) == 1 else result.named
    types = {n: {str(c): str(t) for c, t in frame.dtypes.items()} for n, frame in named.items()}
    rows = {name: _plain_rows(frame) for name, frame in named.items()}
    body = more | _describe(result, types=types) | rows
    return json.dumps(body, ensure_ascii=False, indent=1) + "\n"


def to_jsonl(result: Result, written: TableSet) -> str:
    """Write the first table's rows, one a line; of labels with their scan, examples too."""
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
    paragraphs = [line.translate(_MARKUP) for line in result.said]
    for name, frame in result.named.items():
        title = f"### {name.translate(_IN_NAMES)}\n\n" if len(result.named) > 1 else ""
        heads = [str(column).translate(_IN_NAMES) for column in frame]
        rows = frame.itertuples(index=False)
        cells = ([format_value(value).translate(_MARKUP) for value in row] for row in rows)
        lines = [heads, ["---"] * len(heads), *cells]
        paragraphs.append(title + "\n".join(f"| {' | '.join(line)} |" for line in lines))
    provenance = [f"- {line.translate(_MARKUP)}" for line in result.provenance.as_lines()]
    return "\n\n".join([*paragraphs, "\n".join(provenance)]) + "\n"


def to_parquet(result: TableSet) -> bytes:
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
        why = f'"{path.suffix}" is not a format that {what} are written in ({path.name}).'
        raise FileNotWritten(why, remedy=", ".join(suffixes))
    check_writable(path)


def name_unwritten(tables: Mapping[str, pd.DataFrame], path: Path) -> str:
    """Name the tables that a one-table file leaves out, if any."""
    _, *others = tables
    if not others or path.suffix.lower() not in (".csv", ".jsonl", ".parquet"):
        return ""
    return f" (the first table; .json, .md and .html also hold {', '.join(others)})"


def _plain_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Turn rows into plain json values: missing and infinite are null."""
    rows = table.to_dict("records")
    return [{str(n): None if is_null(cell) else cell for n, cell in row.items()} for row in rows]


@verb
def save(result: Any, path: str | Path, *, provenance: Provenance | Result | None = None) -> None:
    """Write a result, or a table taken from one, to a file.

    A table of your own making (joined, reshaped) has lost its provenance: name that of the result its
    numbers are from, or the result itself.

    >>> import ffnprobe as fp, tempfile
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> fp.save(trace, tempfile.mkdtemp() + "/next.html")
    >>> fp.save(trace, "next.doc")
    Traceback (most recent call last):
    ffnprobe.errors.FileNotWritten: ...
    """
    named = provenance.provenance if isinstance(provenance, Result) else provenance
    if named and isinstance(result, pd.DataFrame) and "provenance" not in result.attrs:
        result = TableSet("table", {"rows": result}, named)
    result = as_result(result)
    own = result.provenance
    if named is not None and named.fingerprint != own.fingerprint:
        raise DataRefused(
            f"these numbers are of {own.model} (weights {own.fingerprint[:8]}); the provenance given is of "
            f"{named.model} (weights {named.fingerprint[:8]}).",
            remedy="leave out provenance: a result has its own",
        )
    save_result(result, Path(path), provenance=named)


def save_result(
    result: Result, path: Path, *, tables: Tables = None, provenance: Provenance | None = None
) -> None:
    """Write a result with its own tables and provenance, or with those given instead."""
    check_target(path)
    data = encode_result(result, path.suffix.lower(), tables=tables, provenance=provenance)
    atomic_write(path, data)


def encode_result(
    result: Result, suffix: str, *, tables: Tables = None, provenance: Provenance | None = None
) -> bytes:
    written = gather_tables(result, tables, provenance, is_told=suffix == ".md")
    if all(table.empty for table in written.named.values()):
        raise FileNotWritten("the result is empty: there is no row to write.")
    if suffix == ".html":
        from ffnprobe.views.page import write_page

        return encode_text(write_page(result, written.named, written.provenance))
    if suffix == ".jsonl":
        return encode_text(to_jsonl(result, written))
    return FILES[suffix](written)


def gather_tables(
    result: Result,
    tables: Tables = None,
    provenance: Provenance | None = None,
    *,
    is_told: bool = False,
) -> TableSet:
    """Gather what a file of a result holds; if it is to be read by people, what is said of it, too."""
    sentences = (result.headline, *result.notes, result.caption) if is_told else ()
    kind = result.kind if isinstance(result, TableSet) else type(result).__name__
    named = result.tables() if tables is None else tables
    source = provenance or result.provenance
    return TableSet(result.title, named, source, kind, tuple(filter(None, sentences)))


def check_picture(path: Path) -> None:
    """Refuse a file that cannot be written before the work begins."""
    check_target(path, FIGURES, what="figures")
    if path.suffix.lower() == ".png" and find_spec("kaleido") is None:
        remedy = f"pip install kaleido, or --plot {path.with_suffix('.html')}"
        why = "a .png needs the package kaleido, which is not installed."
        raise FileNotWritten(why, remedy=remedy)


def save_figure(figure: "go.Figure", path: Path) -> None:
    check_picture(path)
    if path.suffix.lower() == ".html":
        save_figures([figure], path, title=path.stem)
        return
    try:
        size = {"width": figure.layout.width, "height": figure.layout.height}
        data = figure.to_image(format="png", scale=2, **size)
    except Exception as error:  # kaleido raises what its browser raises
        why = f"kaleido could not draw {path.name}: {str(error).strip().splitlines()[0]}"
        remedy = f"install Chrome or Chromium, or write {path.with_suffix('.html').name}"
        raise FileNotWritten(why, remedy=remedy) from None
    atomic_write(path, data)


def save_figures(figures: "Sequence[go.Figure]", path: Path, *, title: str) -> None:
    """Write figures one below the other into a page that contains plotly, whole or not at all."""
    from ffnprobe.views.page import figure_html, wrap

    atomic_write(path, wrap(title, "".join(map(figure_html, figures))).encode())


@verb
def open_result(path: str | Path, *, verify: bool = True) -> Result:
    """Read a result back: a survey or a search as such, any other as its tables.

    A file that was changed after it was written is refused. `verify=False` reads it as it is, say after an
    edit by hand, and the provenance then says that it is not verified; so it does of a csv or json
    without a checksum, as `--format` prints them.

    >>> import ffnprobe as fp
    >>> fp.open_result("jordan.xlsx")
    Traceback (most recent call last):
    ffnprobe.errors.DataRefused: a result cannot be read back from ".xlsx" (jordan.xlsx).
      try: .csv, .json, .parquet
    """
    file = Path(path)
    suffix = file.suffix.lower()
    readers: dict[str, Callable[[bytes], TableSet]] = {
        ".csv": partial(_read_csv, file.stem), ".json": _read_json, ".parquet": _read_parquet,
    }  # fmt: skip
    if suffix not in readers:
        why = f'a result cannot be read back from "{suffix}" ({file.name}).'
        raise DataRefused(why, remedy=", ".join(readers))
    try:
        data = safe_read(file, most=sys.maxsize - 1)
    except FileNotFoundError:
        raise DataRefused(f"there is no file {file}.") from None
    is_verified = verify and _is_verified(file, data)
    try:
        tables = readers[suffix](data)
        if not is_verified:
            tables = replace(tables, provenance=replace(tables.provenance, verified=False))
        return _restore(tables)
    except Exception as error:  # a damaged file can make any of the readers raise anything
        why = error.what if isinstance(error, FfnProbeError) else f"{error}".partition("\n")[0]
        why = f"there is no {error.args[0]}" if isinstance(error, KeyError) else why
        why = why.rstrip(".") or type(error).__name__
        what = f"{file} is not a result that ffnprobe wrote, or it is damaged: {why}."
        raise DataRefused(what, remedy="the file as fp.save or --out wrote it") from None


def _is_verified(file: Path, data: bytes) -> bool:
    """Say whether the checksum fits; refuse what it does not fit. Printed text has none, a parquet always."""
    is_whole = is_sealed(data)
    if is_whole is None and b'"checksum"' not in data and file.suffix.lower() != ".parquet":
        return False
    if is_whole:
        return True
    why = (
        "is not a result that ffnprobe wrote, or it is damaged: it has no checksum that can be read"
        if is_whole is None
        else "has been changed since it was written: edited, damaged, or saved again by another program"
    )
    raise DataRefused(f"{file} {why}.", remedy="open_result(path, verify=False) reads it as it is")


def _restore(tables: TableSet) -> Result:
    """Make the result that the tables were taken from, if it is its table; else the tables."""
    # These load torch, which a name that cannot be written must not wait for.
    from ffnprobe.reading.searches import Search
    from ffnprobe.reading.surveys import Survey

    types: dict[str, tuple[Callable[[pd.DataFrame, Provenance], Result], tuple[str, ...]]] = {
        "Survey": (Survey, ("name", "layer", "neuron", "kind")),
        "Search": (Search, ("name", "layer", "neuron")),
    }
    if not all(isinstance(text, str) for text in (tables.title, tables.kind, *tables.named)):
        raise DataRefused("the names in it are not texts")
    if not tables.named:
        raise DataRefused("it has no table")
    for table in tables.named.values():
        tables.provenance.note(table)
    if tables.kind not in types:
        return tables
    make, columns = types[tables.kind]
    result = make(tables.table, tables.provenance)
    if lacking := [name for name in columns if name not in result.table]:
        raise DataRefused(f"its table has no {', '.join(lacking)}")
    _ = result.title  # of a search it is made from the settings, which must be there
    return result


def _read_csv(title: str, data: bytes) -> TableSet:
    table, provenance = read_csv(data.decode("utf-8-sig"))
    return TableSet(title, {"rows": table}, Provenance.from_dict(provenance))


def _read_json(data: bytes) -> TableSet:
    body = json.loads(data)
    about = body["result"]
    if unknown := body.keys() - {"checksum", "provenance", "result", *about["types"]}:
        raise DataRefused(f"it has a field {min(unknown)!r}")
    tables = {}
    for name, types in about["types"].items():
        series = {c: pd.Series([row[c] for row in body[name]], dtype=t) for c, t in types.items()}
        tables[name] = pd.DataFrame(series)
    if len(tables) == 1:  # a single table is called rows in the file
        tables = dict(zip(about["tables"], tables.values(), strict=True))
    return TableSet(about["title"], tables, Provenance.from_dict(body["provenance"]), about["type"])


def _read_parquet(data: bytes) -> TableSet:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(pa.BufferReader(data))
    table.validate(full=True)
    body = json.loads(table.schema.metadata[b"ffnprobe"])
    about = body["result"]
    tables = {about["tables"][0]: table.to_pandas()}
    return TableSet(about["title"], tables, Provenance.from_dict(body["provenance"]), about["type"])

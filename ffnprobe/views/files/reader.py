"""Read a result back from a file this package wrote: its tables, their types and its provenance.

csv and parquet hold a result's first table, json all of them; md and html are for people.

>>> import ffnprobe as fp, tempfile, pathlib
>>> path = pathlib.Path(tempfile.mkdtemp()) / "golf.json"
>>> fp.save(fp.search(fp.load("pocket"), " golf", k=3), path)
>>> fp.open_result(path)
Search(neurons that push toward ␣golf)
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from ffnprobe.errors import DataRefused
from ffnprobe.models.provenance import Provenance
from ffnprobe.reading.searches import Search
from ffnprobe.reading.surveys import Survey
from ffnprobe.results import Result, TableSet
from ffnprobe.views.files.csv_format import read_csv

# Results that are a table and a provenance, and nothing else.
_TYPES: dict[str, Callable[[pd.DataFrame, Provenance], Result]] = {
    "Survey": Survey,
    "Search": Search,
}


def open_result(path: str | Path) -> Result:
    """Read a result back: a survey or a search as such, any other as its tables.

    >>> import ffnprobe as fp
    >>> fp.open_result("jordan.xlsx")
    Traceback (most recent call last):
    ffnprobe.errors.DataRefused: a result cannot be read back from ".xlsx" (jordan.xlsx).
      try: .csv, .json, .parquet
    """
    file = Path(path)
    readers = {".csv": _read_csv, ".json": _read_json, ".parquet": _read_parquet}
    suffix = file.suffix.lower()
    if suffix not in readers:
        raise DataRefused(
            f'a result cannot be read back from "{suffix}" ({file.name}).',
            remedy=", ".join(readers),
        )
    if not file.is_file():
        raise DataRefused(f"there is no file {file}.")
    try:
        found = readers[suffix](file)
    except (
        KeyError,
        ValueError,
        TypeError,
        AttributeError,
        StopIteration,
        RecursionError,
    ) as error:
        raise DataRefused(f"{file} is not a result that ffnprobe wrote: {error}.") from None
    for table in found.named.values():
        found.provenance.note(table)
    make = _TYPES.get(found.kind)
    return found if make is None else make(found.table, found.provenance)


def _read_csv(file: Path) -> TableSet:
    table, known = read_csv(file.read_bytes().decode("utf-8"))
    return TableSet(file.stem, {"rows": table}, Provenance.from_dict(known))


def _read_json(file: Path) -> TableSet:
    found = json.loads(file.read_bytes())
    about = found["result"]
    tables = {name: _frame(found[name], types) for name, types in about["types"].items()}
    if len(tables) == 1:  # a single table is called rows in the file
        tables = dict(zip(about["tables"], tables.values(), strict=True))
    known = Provenance.from_dict(found["provenance"])
    return TableSet(about["title"], tables, known, about["type"])


def _frame(rows: list[dict[str, Any]], types: Mapping[str, str]) -> pd.DataFrame:
    """Build a table from its rows, columns in their order and of their types."""
    columns = {
        name: pd.Series([row[name] for row in rows], dtype=kind) for name, kind in types.items()
    }
    return pd.DataFrame(columns)


def _read_parquet(file: Path) -> TableSet:
    import pyarrow.parquet as pq

    found = pq.read_table(file)
    note = json.loads(found.schema.metadata[b"ffnprobe"])
    about = note["result"]
    tables = {about["tables"][0]: found.to_pandas()}
    return TableSet(about["title"], tables, Provenance.from_dict(note["provenance"]), about["type"])

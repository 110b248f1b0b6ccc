"""Read a result back from a file this package wrote: its tables, their types and its provenance.

csv and parquet hold a result's first table, json all of them; md and html are for people. The bytes are
compared with the checksum among them before anything is read from them.

>>> import ffnprobe as fp, tempfile, pathlib
>>> path = pathlib.Path(tempfile.mkdtemp()) / "golf.json"
>>> fp.save(fp.search(fp.load("pocket"), " golf", top=3), path)
>>> fp.open_result(path)
Search(neurons that push toward ␣golf)
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from ffnprobe.arguments import verb
from ffnprobe.errors import DataRefused, FfnProbeError
from ffnprobe.inputs import read_input
from ffnprobe.provenance import Provenance
from ffnprobe.reading.searches import Search
from ffnprobe.reading.surveys import Survey
from ffnprobe.results import Result, TableSet
from ffnprobe.seals import is_sealed
from ffnprobe.views.files.csv_format import read_csv

# Results that are a table and a provenance, and nothing else; the columns they need.
_TYPES: dict[str, tuple[Callable[[pd.DataFrame, Provenance], Result], tuple[str, ...]]] = {
    "Survey": (Survey, ("name", "layer", "neuron", "kind")),
    "Search": (Search, ("name", "layer", "neuron")),
}


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
        raise DataRefused(
            f'a result cannot be read back from "{suffix}" ({file.name}).',
            remedy=", ".join(readers),
        )
    try:
        data = read_input(file, most=sys.maxsize - 1)
    except FileNotFoundError:
        raise DataRefused(f"there is no file {file}.") from None
    is_verified = verify and _is_verified(file, data)
    try:
        found = readers[suffix](data)
        known = found.provenance if is_verified else replace(found.provenance, verified=False)
        return _make(replace(found, provenance=known))
    except Exception as error:  # a damaged file can make any of the readers raise anything
        why = error.what if isinstance(error, FfnProbeError) else f"{error}".partition("\n")[0]
        why = f"there is no {error.args[0]}" if isinstance(error, KeyError) else why
        why = why.rstrip(".") or type(error).__name__
        raise DataRefused(
            f"{file} is not a result that ffnprobe wrote, or it is damaged: {why}.",
            remedy="the file as fp.save or --out wrote it",
        ) from None


def _is_verified(file: Path, data: bytes) -> bool:
    """Say whether the checksum fits; refuse what it does not fit. Printed text has none, a parquet always."""
    found = is_sealed(data)
    if found or (found is None and b'"checksum"' not in data and file.suffix.lower() != ".parquet"):
        return bool(found)
    why = (
        "is not a result that ffnprobe wrote, or it is damaged: it has no checksum that can be read"
        if found is None
        else "has been changed since it was written: edited, damaged, or saved again by another program"
    )
    raise DataRefused(f"{file} {why}.", remedy="open_result(path, verify=False) reads it as it is")


def _make(found: TableSet) -> Result:
    """Make the result that the tables were taken from, if it is its table; else the tables."""
    if not all(isinstance(text, str) for text in (found.title, found.kind, *found.named)):
        raise DataRefused("the names in it are not texts")
    if not found.named:
        raise DataRefused("it has no table")
    for table in found.named.values():
        found.provenance.note(table)
    if found.kind not in _TYPES:
        return found
    make, columns = _TYPES[found.kind]
    result = make(found.table, found.provenance)
    if lacking := [name for name in columns if name not in result.table]:
        raise DataRefused(f"its table has no {', '.join(lacking)}")
    _ = result.title  # of a search it is made from the settings, which must be there
    return result


def _read_csv(title: str, data: bytes) -> TableSet:
    table, known = read_csv(data.decode("utf-8-sig"))
    return TableSet(title, {"rows": table}, Provenance.from_dict(known))


def _read_json(data: bytes) -> TableSet:
    found = json.loads(data)
    about = found["result"]
    if unknown := found.keys() - {"checksum", "provenance", "result", *about["types"]}:
        raise DataRefused(f"it has a field {min(unknown)!r}")
    tables = {name: _frame(found[name], types) for name, types in about["types"].items()}
    if len(tables) == 1:  # a single table is called rows in the file
        tables = dict(zip(about["tables"], tables.values(), strict=True))
    known = Provenance.from_dict(found["provenance"])
    return TableSet(about["title"], tables, known, about["type"])


def _frame(rows: list[dict[str, Any]], types: Mapping[str, str]) -> pd.DataFrame:
    """Build a table from its rows, columns in their order and of their types."""
    return pd.DataFrame(
        {name: pd.Series([row[name] for row in rows], dtype=kind) for name, kind in types.items()}
    )


def _read_parquet(data: bytes) -> TableSet:
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = pq.read_table(pa.BufferReader(data))
    found.validate(full=True)
    note = json.loads(found.schema.metadata[b"ffnprobe"])
    about = note["result"]
    tables = {about["tables"][0]: found.to_pandas()}
    return TableSet(about["title"], tables, Provenance.from_dict(note["provenance"]), about["type"])

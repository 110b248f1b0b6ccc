"""Read a table back from a file this package wrote, with its types and its provenance.

csv, json and parquet can be read; md and html are for people.
"""

import json
from pathlib import Path

import pandas as pd

from ffnprobe.cells import is_missing
from ffnprobe.errors import DataRefused
from ffnprobe.views.files.csv_format import read_csv

READABLE = (".csv", ".json", ".parquet")


def read_table(path: str | Path, name: str | None = None) -> pd.DataFrame:
    """Read the first table of a file, or the named table of a json file; `attrs` holds the provenance."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in READABLE:
        raise DataRefused(
            f'a table cannot be read back from "{suffix}" ({path.name}).',
            remedy=", ".join(READABLE),
        )
    if not path.is_file():
        raise DataRefused(f"there is no file {path}.")
    try:
        if suffix == ".parquet":
            return _read_parquet(path)
        text = path.read_bytes().decode("utf-8")
        return read_csv(text) if suffix == ".csv" else _read_json(text, name)
    except (KeyError, ValueError, StopIteration) as error:
        raise DataRefused(f"{path} is not a table that ffnprobe wrote: {error}.") from None


def _read_json(text: str, name: str | None) -> pd.DataFrame:
    found = json.loads(text)
    provenance = found.pop("provenance")
    table = pd.DataFrame(found[name or next(iter(found))])
    for column in table:
        # json has only null for missing values; whole numbers stay whole.
        present = [value for value in table[column] if not is_missing(value)]
        if len(present) < len(table) and all(_is_whole(v) for v in present):
            table[column] = table[column].astype("Int64")
    table.attrs["provenance"] = provenance
    return table


def _is_whole(value: object) -> bool:
    return isinstance(value, (int, float)) and float(value).is_integer()


def _read_parquet(path: Path) -> pd.DataFrame:
    import pyarrow.parquet as pq

    found = pq.read_table(path)
    table: pd.DataFrame = found.to_pandas()
    table.attrs["provenance"] = json.loads(found.schema.metadata[b"ffnprobe"])
    return table

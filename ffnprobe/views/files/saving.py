"""Save a result: the file's suffix decides the format, and the file is written whole or not at all.

    .csv .parquet   the result's first table
    .json .md       all its tables
    .html           a page with its figures, its tables and words on how to read them

>>> import ffnprobe as fp, tempfile, pathlib
>>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
>>> path = pathlib.Path(tempfile.mkdtemp()) / "next.csv"
>>> fp.save(trace, path)
>>> from ffnprobe.views.files.reader import read_table
>>> read_table(path).token[0]
'␣basketball'
"""

from pathlib import Path
from typing import Any

from ffnprobe.errors import FileNotWritten
from ffnprobe.files import write_whole
from ffnprobe.models.provenance import Provenance
from ffnprobe.views.files.formats import TEXTS, Tables, check_target, to_parquet
from ffnprobe.views.results import Result, as_result


def save(result: Any, path: str | Path) -> None:
    """Write a result, or a table taken from one, to a file.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> import tempfile
    >>> page = tempfile.mkdtemp() + "/next.html"
    >>> fp.save(trace, page)
    >>> fp.save(trace, "next.doc")
    Traceback (most recent call last):
    ffnprobe.errors.FileNotWritten: ...
    """
    save_result(as_result(result), Path(path))


def save_result(
    result: Result,
    path: Path,
    *,
    tables: Tables | None = None,
    provenance: Provenance | None = None,
) -> None:
    """Write a result with its own tables and provenance, or with those given instead."""
    check_target(path)
    data = encode_result(result, path.suffix.lower(), tables=tables, provenance=provenance)
    write_whole(path, data)


def encode_result(
    result: Result,
    suffix: str,
    *,
    tables: Tables | None = None,
    provenance: Provenance | None = None,
) -> bytes:
    """Write a result as the bytes of a file with that suffix."""
    chosen = result.tables() if tables is None else tables
    known = result.provenance if provenance is None else provenance
    if all(table.empty for table in chosen.values()):
        raise FileNotWritten("the result is empty: there is no row to write.")
    if suffix == ".parquet":
        return to_parquet(chosen, known)
    if suffix == ".html":
        from ffnprobe.views.report.pages import write_page

        return write_page(result, chosen, known).encode()
    return TEXTS[suffix[1:]](chosen, known).encode()

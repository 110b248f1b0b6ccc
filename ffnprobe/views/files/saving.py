"""Save a result or a figure: the suffix decides the format; a file is written whole or not at all.

    .csv .jsonl .parquet   the result's first table
    .json .md              all its tables
    .html                  a page with its figures, its tables and words on how to read them

A figure is written as .html, which any browser opens without a network, or as .png, which kaleido draws.

>>> import ffnprobe as fp, tempfile, pathlib
>>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
>>> path = pathlib.Path(tempfile.mkdtemp()) / "next.csv"
>>> fp.save(trace, path)
>>> fp.open_result(path).table.token[0]
'␣basketball'
"""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from ffnprobe.arguments import verb
from ffnprobe.errors import DataRefused, FileNotWritten
from ffnprobe.files import write_whole
from ffnprobe.provenance import Provenance
from ffnprobe.results import Result, Tables, TableSet, as_result
from ffnprobe.views.files.formats import FILES, check_target, encode_text, to_jsonl

if TYPE_CHECKING:
    import plotly.graph_objects as go

FIGURES = (".html", ".png")
_SHARPNESS = 2


@verb
def save(result: Any, path: str | Path, *, provenance: Provenance | Result | None = None) -> None:
    """Write a result, or a table taken from one, to a file.

    A table of your own making (joined, reshaped) has lost its provenance: name that of the result its
    numbers are from, or the result itself.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> import tempfile
    >>> page = tempfile.mkdtemp() + "/next.html"
    >>> fp.save(trace, page)
    >>> fp.save(trace, "next.doc")
    Traceback (most recent call last):
    ffnprobe.errors.FileNotWritten: ...
    """
    known = provenance.provenance if isinstance(provenance, Result) else provenance
    if known and isinstance(result, pd.DataFrame) and "provenance" not in result.attrs:
        result = TableSet("table", {"rows": result}, known)
    found = as_result(result)
    own = found.provenance
    if known is not None and known.fingerprint != own.fingerprint:
        raise DataRefused(
            f"these numbers are of {own.model} (weights {own.fingerprint[:8]}); the provenance given is of "
            f"{known.model} (weights {known.fingerprint[:8]}).",
            remedy="leave out provenance: a result has its own",
        )
    save_result(found, Path(path), provenance=known)


def save_result(
    result: Result, path: Path, *, tables: Tables = None, provenance: Provenance | None = None
) -> None:
    """Write a result with its own tables and provenance, or with those given instead."""
    check_target(path)
    data = encode_result(result, path.suffix.lower(), tables=tables, provenance=provenance)
    write_whole(path, data)


def encode_result(
    result: Result, suffix: str, *, tables: Tables = None, provenance: Provenance | None = None
) -> bytes:
    """Write a result as the bytes of a file with that suffix."""
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
    said = (result.headline, *result.notes, result.caption) if is_told else ()
    return TableSet(
        title=result.title,
        named=result.tables() if tables is None else tables,
        provenance=result.provenance if provenance is None else provenance,
        kind=result.kind if isinstance(result, TableSet) else type(result).__name__,
        said=tuple(filter(None, said)),
    )


def check_picture(path: Path) -> None:
    """Refuse a file that cannot be written before the work begins."""
    check_target(path, FIGURES, what="figures")
    if path.suffix.lower() == ".png" and find_spec("kaleido") is None:
        raise FileNotWritten(
            "a .png needs the package kaleido, which is not installed.",
            remedy=f"pip install kaleido, or --plot {path.with_suffix('.html')}",
        )


def save_figure(figure: "go.Figure", path: Path) -> None:
    """Write a figure to a .html or .png file, whole or not at all."""
    check_picture(path)
    if path.suffix.lower() == ".html":
        save_figures([figure], path, title=path.stem)
        return
    try:
        size = {"width": figure.layout.width, "height": figure.layout.height}
        data = figure.to_image(format="png", scale=_SHARPNESS, **size)
    except Exception as error:  # kaleido raises what its browser raises
        raise FileNotWritten(
            f"kaleido could not draw {path.name}: {str(error).strip().splitlines()[0]}",
            remedy=f"install Chrome or Chromium, or write {path.with_suffix('.html').name}",
        ) from None
    write_whole(path, data)


def save_figures(figures: "Sequence[go.Figure]", path: Path, *, title: str) -> None:
    """Write figures one below the other into a page that contains plotly, whole or not at all."""
    from ffnprobe.views.page import figure_html, wrap

    write_whole(path, wrap(title, "".join(map(figure_html, figures))).encode())

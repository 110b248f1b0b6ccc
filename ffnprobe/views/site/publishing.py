"""Publish results as a site that opens from disk or any web server.

    index.html               every result, searchable
    results/NAME.html        a result's page: figures if it has them, tables, provenance
    results/NAME.json …      its data, which `open_result` reads back; also .csv and .parquet
    README.md                the card of a data set
    site.json                what the site is of, with a checksum; written last

Results are of one model. Published again to the same folder, or together with the folder of somebody
else, results of the same identity (weights, configuration, vocabulary) are merged, each kept once; those
of another are refused, and nothing is written. So is a site with links among its files: they may lead
anywhere.
"""

import json
import os
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from ffnprobe.arguments import verb
from ffnprobe.errors import DataRefused, FileNotWritten
from ffnprobe.files import TEMPORARY, quote, write_whole
from ffnprobe.inputs import parse_json, read_input
from ffnprobe.models.checkpoint import tell_apart
from ffnprobe.provenance import Provenance
from ffnprobe.results import Result, TableSet, as_result
from ffnprobe.seals import BLANK, is_sealed, seal
from ffnprobe.store import LOCK, hold
from ffnprobe.views.files.formats import encode_text
from ffnprobe.views.files.reader import open_result
from ffnprobe.views.files.saving import encode_result, gather_tables
from ffnprobe.views.page import write_page
from ffnprobe.views.site.index import (
    FOLDER,
    SUFFIXES,
    Entry,
    describe,
    write_index,
    write_links,
    write_readme,
)

MANIFEST = "site.json"
# What a site that was interrupted may hold; it is finished by the next.
OWN = (LOCK, FOLDER, "index.html", "README.md", ".nojekyll")


@verb
def publish(
    results: Result | str | os.PathLike[str] | Sequence[Result | str | os.PathLike[str]],
    folder: str | os.PathLike[str],
) -> Path:
    """Write results as a static site; return its index. Results are those of verbs, files, or other sites.

    A file is a .json, .csv or .parquet that ffnprobe wrote; a result of a verb has its figures too.

    >>> import ffnprobe as fp, tempfile
    >>> model = fp.load("pocket")
    >>> index = fp.publish([fp.search(model, " golf"), fp.read(model, "L0N1")], tempfile.mkdtemp())
    >>> index.name, len(list(index.parent.glob("results/*.html")))
    ('index.html', 2)
    """
    given = [results] if isinstance(results, Result | str | os.PathLike) else list(results)
    if not given:
        raise DataRefused("there is no result to publish.", remedy="files that --out wrote")
    target = Path(folder)
    found = [result for each in given for result in _gather(each)]
    known = found[0].provenance
    for result in found:
        _check_same(known, result.provenance, result.title)
    _check_folder(target)
    rendered = [_render(result) for result in found]
    with hold(target, remedy="wait for it to end, or another folder"):
        entries = _read_entries(target, known) | {entry.name: entry for entry, _, _ in rendered}
        model = Provenance(known.model, known.source, known.fingerprint, known.identity)
        listed = [entries[name] for name in sorted(entries)]
        about = {"model": model.as_dict(), "entries": [vars(entry) for entry in listed]}
        about["checksum"] = BLANK.decode()
        manifest = seal(encode_text(json.dumps(about, ensure_ascii=False, indent=1)))
        (target / FOLDER).mkdir(exist_ok=True)
        for entry, is_plain, data in rendered:
            # A page that is there may have figures, that of a file has none.
            if not (is_plain and (target / FOLDER / f"{entry.name}.html").is_file()):
                for suffix, content in data.items():
                    write_whole(target / FOLDER / f"{entry.name}{suffix}", content)
        index = target / "index.html"
        write_whole(index, encode_text(write_index(model, listed)))
        write_whole(target / "README.md", encode_text(write_readme(model, listed)))
        # GitHub Pages would leave out what begins with an underscore and run the rest through Jekyll.
        write_whole(target / ".nojekyll", b"")
        write_whole(target / MANIFEST, manifest)
        return index


def _gather(given: object) -> list[Result]:
    """Read what is given: a result, a file of one, or a folder of published ones."""
    if not isinstance(given, str | os.PathLike):
        return [as_result(given)]
    path = Path(given)
    if not path.is_dir():
        return [open_result(path)]
    if not (path / MANIFEST).is_file():
        raise DataRefused(
            f"{path} is not a site that ffnprobe published.", remedy="files of results"
        )
    _check_links(path)
    _read_manifest(path)
    return [open_result(file) for file in sorted((path / FOLDER).glob("*.json"))]


def _check_same(known: Provenance, other: Provenance, title: str) -> None:
    """Refuse results of another model; one whose identity is not recorded is compared by its weights."""
    if known.identity is None or other.identity is None:
        differ = "" if known.fingerprint == other.fingerprint else "weights"
    else:
        differ = tell_apart(known.identity, other.identity)
    if differ:
        raise DataRefused(
            f'"{title}" is of {other.model} ({other.fingerprint[:8]}), not of {known.model} '
            f"({known.fingerprint[:8]}): they have different {differ}.",
            remedy="a site for each model",
        )


def _check_folder(target: Path) -> None:
    """Refuse a folder that holds something else."""
    if target.exists() and not target.is_dir():
        raise FileNotWritten(f"{target} is a file; a site is a folder.")
    _check_links(target)
    if (target / MANIFEST).is_file() or not target.is_dir():
        return
    if any(name not in OWN and not name.startswith(TEMPORARY) for name in os.listdir(target)):
        raise FileNotWritten(
            f"{target} holds files that are not a published site's.", remedy="an empty folder"
        )


def _check_links(site: Path) -> None:
    """Refuse links among a site's files; that to the site itself is where the user wants it to be."""
    own = (site / name for name in (*OWN, MANIFEST))
    for path in chain(own, (site / FOLDER).glob("*")):
        if path.is_symlink():
            raise DataRefused(
                f"{path} is a link; a published site holds files, so that nothing outside of it is "
                "read or overwritten.",
                remedy=f"if you trust where links lead, cp -rL {quote(site)} COPY has files in their place",
            )


def _read_entries(target: Path, known: Provenance) -> dict[str, Entry]:
    """Read what a site has already, if it is of the same model."""
    if not (target / MANIFEST).is_file():
        return {}
    held = _read_manifest(target)
    _check_same(Provenance.from_dict(held["model"]), known, "what is published now")
    return {each["name"]: Entry(**each) for each in held["entries"]}


def _read_manifest(site: Path) -> dict[str, Any]:
    """Read what a site is of, once its checksum fits."""
    path = site / MANIFEST
    data = read_input(path)
    if not (is_whole := is_sealed(data)):
        why = "of an earlier version: it has no checksum"
        if is_whole is not None:
            why = "was changed: its checksum does not fit"
        raise DataRefused(
            f"{path} is damaged or {why}.",
            remedy=f"publish its results, {quote(site / FOLDER)}/*.json, to another folder",
        )
    held: dict[str, Any] = parse_json(data, where=str(path))
    return held


def _render(result: Result) -> tuple[Entry, bool, dict[str, bytes]]:
    """Write a result's data and page as bytes by suffix, the page last; say if it has no figures."""
    held = gather_tables(result)
    data = {suffix: encode_result(held, suffix) for suffix in SUFFIXES}
    entry = describe(held, data[".json"])
    head, mark, rest = write_page(result, held.named, held.provenance).partition("</h1>")
    data[".html"] = encode_text(f"{head}{mark}{write_links(entry)}{rest}")
    return entry, isinstance(result, TableSet), data

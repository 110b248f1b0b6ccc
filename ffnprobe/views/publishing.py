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
import re
from collections.abc import Sequence
from html import escape
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from ffnprobe import files
from ffnprobe.arguments import verb
from ffnprobe.documents.blocks import Section, Terms, Words
from ffnprobe.documents.html import write_html
from ffnprobe.errors import DataRefused, FileNotWritten
from ffnprobe.layout import escape_bidi
from ffnprobe.models.checkpoint import tell_apart
from ffnprobe.provenance import Provenance
from ffnprobe.results import Result, TableSet, as_result
from ffnprobe.store import LOCK, hold
from ffnprobe.views.page import wrap, write_page
from ffnprobe.views.saving import encode_result, encode_text, gather_tables, open_result

MANIFEST = "site.json"
FOLDER = "results"
# What a site that was interrupted may hold; it is finished by the next.
OWN = (LOCK, FOLDER, "index.html", "README.md", ".nojekyll")
SUFFIXES = (".json", ".csv", ".parquet")
LONGEST_NAME = 60
# Of a survey not every neuron is listed in the index.
NEURONS = 200
SHOWN_NEURONS = 3
HEADS = {"result": "text", "kind": "text", "asked": "text", "rows": "number", "neurons": "text"}
HOW_TO_READ = (
    "A grade counts kinds of evidence for a neuron; it does not say where a fact is stored. "
    "Pushes add up to a logit, effects do not. Results of other weights are not in this site."
)
# What Markdown or HTML may read as markup.
_MARKUP = re.compile(r"[!-&*+/:-@\[-`{-~]")


class Entry(NamedTuple):
    """One published result: its name, what it is of, and what a search finds it by."""

    name: str
    title: str
    kind: str
    asked: str
    rows: int
    neurons: list[str]


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
    sources = [results] if isinstance(results, Result | str | os.PathLike) else list(results)
    if not sources:
        raise DataRefused("there is no result to publish.", remedy="files that --out wrote")
    target = Path(folder)
    gathered = [result for source in sources for result in _gather(source)]
    first = gathered[0].provenance
    for result in gathered:
        _check_same(first, result.provenance, result.title)
    _check_folder(target)
    rendered = [_render(result) for result in gathered]
    with hold(target, remedy="wait for it to end, or another folder"):
        entries = _read_entries(target, first) | {entry.name: entry for entry, _, _ in rendered}
        model = Provenance(first.model, first.source, first.fingerprint, first.identity)
        listed = [entries[name] for name in sorted(entries)]
        about = {"model": model.as_dict(), "entries": [entry._asdict() for entry in listed]}
        about["checksum"] = files.BLANK.decode()
        manifest = files.seal(encode_text(json.dumps(about, ensure_ascii=False, indent=1)))
        (target / FOLDER).mkdir(exist_ok=True)
        for entry, is_plain, data in rendered:
            # A page that is there may have figures, that of a file has none.
            if not (is_plain and (target / FOLDER / f"{entry.name}.html").is_file()):
                for suffix, content in data.items():
                    files.atomic_write(target / FOLDER / f"{entry.name}{suffix}", content)
        index = target / "index.html"
        files.atomic_write(index, encode_text(_write_index(model, listed)))
        files.atomic_write(target / "README.md", encode_text(_write_readme(model, listed)))
        # GitHub Pages would leave out what begins with an underscore and run the rest through Jekyll.
        files.atomic_write(target / ".nojekyll", b"")
        files.atomic_write(target / MANIFEST, manifest)
        return index


def _gather(source: object) -> list[Result]:
    """Read what is given: a result, a file of one, or a folder of published ones."""
    if not isinstance(source, str | os.PathLike):
        return [as_result(source)]
    path = Path(source)
    if not path.is_dir():
        return [open_result(path)]
    if not (path / MANIFEST).is_file():
        why = f"{path} is not a site that ffnprobe published."
        raise DataRefused(why, remedy="files of results")
    _check_links(path)
    _read_manifest(path)
    return [open_result(file) for file in sorted((path / FOLDER).glob("*.json"))]


def _check_same(first: Provenance, other: Provenance, title: str) -> None:
    """Refuse results of another model; one whose identity is not recorded is compared by its weights."""
    if first.identity is None or other.identity is None:
        differ = "" if first.fingerprint == other.fingerprint else "weights"
    else:
        differ = tell_apart(first.identity, other.identity)
    if differ:
        raise DataRefused(
            f'"{title}" is of {other.model} ({other.fingerprint[:8]}), not of {first.model} '
            f"({first.fingerprint[:8]}): they have different {differ}.",
            remedy="a site for each model",
        )


def _check_folder(target: Path) -> None:
    if target.exists() and not target.is_dir():
        raise FileNotWritten(f"{target} is a file; a site is a folder.")
    _check_links(target)
    if (target / MANIFEST).is_file() or not target.is_dir():
        return
    if any(name not in OWN and not name.startswith(files.TEMPORARY) for name in os.listdir(target)):
        why = f"{target} holds files that are not a published site's."
        raise FileNotWritten(why, remedy="an empty folder")


def _check_links(site: Path) -> None:
    """Refuse links among a site's files; that to the site itself is where the user wants it to be."""
    own = (site / name for name in (*OWN, MANIFEST))
    for path in chain(own, (site / FOLDER).glob("*")):
        if path.is_symlink():
            raise DataRefused(
                f"{path} is a link; a published site holds files, so that nothing outside of it is "
                "read or overwritten.",
                remedy=f"if you trust where links lead, cp -rL {files.quote(site)} COPY has files in their place",
            )


def _read_entries(target: Path, first: Provenance) -> dict[str, Entry]:
    """Read what a site has already, if it is of the same model."""
    if not (target / MANIFEST).is_file():
        return {}
    site = _read_manifest(target)
    _check_same(Provenance.from_dict(site["model"]), first, "what is published now")
    return {entry["name"]: Entry(**entry) for entry in site["entries"]}


def _read_manifest(site: Path) -> dict[str, Any]:
    """Read what a site is of, once its checksum fits."""
    path = site / MANIFEST
    data = files.safe_read(path)
    if not (is_whole := files.is_sealed(data)):
        has_none = "of an earlier version: it has no checksum"
        why = has_none if is_whole is None else "was changed: its checksum does not fit"
        remedy = f"publish its results, {files.quote(site / FOLDER)}/*.json, to another folder"
        raise DataRefused(f"{path} is damaged or {why}.", remedy=remedy)
    manifest: dict[str, Any] = files.parse_json(data, where=str(path))
    return manifest


def _render(result: Result) -> tuple[Entry, bool, dict[str, bytes]]:
    """Write a result's data and page as bytes by suffix, the page last; say if it has no figures."""
    tables = gather_tables(result)
    data = {suffix: encode_result(tables, suffix) for suffix in SUFFIXES}
    entry = _describe(tables, data[".json"])
    head, mark, rest = write_page(result, tables.named, tables.provenance).partition("</h1>")
    downloads = ", ".join(
        f'<a href="{escape(entry.name + suffix)}" download>{suffix[1:]}</a>' for suffix in SUFFIXES
    )
    links = f'<p class="soft"><a href="../index.html">all results</a> · data: {downloads}</p>'
    data[".html"] = encode_text(f"{head}{mark}{links}{rest}")
    return entry, isinstance(result, TableSet), data


def _describe(tables: TableSet, data: bytes) -> Entry:
    """Describe a result; its name is made from its JSON, the same whoever publishes it."""
    words = re.sub(r"[^a-z0-9]+", "-", tables.title.lower()).strip("-")[:LONGEST_NAME].strip("-")
    about = tables.provenance
    asked = " ".join(about.tokens or ()) if about.prompt is None else about.prompt
    if about.prompt is not None and about.answer is not None:
        asked += f" → {about.answer}"
    names = [str(name) for table in tables.named.values() for name in table.get("name", ())]
    name = f"{words or 'result'}-{xxhash.xxh3_64_hexdigest(data)[:8]}"
    neurons = list(dict.fromkeys(names))[:NEURONS]
    return Entry(name, tables.title, tables.kind, asked, len(tables.table), neurons)


def _write_index(model: Provenance, entries: Sequence[Entry]) -> str:
    intro = (
        f"{len(entries):,} result{'s' * (len(entries) != 1)} of one model, each with its tables, its "
        "provenance and its data. Type to search: a word, a token, a neuron."
    )
    heads = "".join(
        f'<th scope="col" aria-sort="none" data-type="{kind}"><button type="button">{name}</button></th>'
        for name, kind in HEADS.items()
    )
    table = (
        '<div class="bar"><input type="search" data-table="results" placeholder="search" '
        'aria-label="search the results"><span class="soft"></span></div>'
        f'<div class="scroll"><table class="sortable" id="results"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(map(_write_row, entries))}</tbody></table></div>"
    )
    about = {"model": model.model, "source": str(model.source), "weights": model.fingerprint}
    about["identity"] = model.identity or "not known"
    source = Section("The model", lambda: [Terms(about)])
    reading = Section("How to read it", lambda: [Words(HOW_TO_READ)])
    body = f"{write_html([Words(intro)])}{table}{write_html([source, reading])}"
    return wrap(f"What ffnprobe found in {model.model}", body)


def _write_row(entry: Entry) -> str:
    first, rest = entry.neurons[:SHOWN_NEURONS], entry.neurons[SHOWN_NEURONS:]
    # What is hidden is found by a search all the same.
    more = f" … <span hidden>{escape(' '.join(rest))}</span>" if rest else ""
    return (
        f'<tr><td style="white-space:normal"><a href="{FOLDER}/{escape(entry.name)}.html">{escape(escape_bidi(entry.title))}</a></td>'
        f"<td>{escape(entry.kind)}</td><td>{escape(escape_bidi(entry.asked))}</td>"
        f"<td class=number>{entry.rows:,}</td><td>{escape(' '.join(first))}{more}</td></tr>"
    )


def _write_readme(model: Provenance, entries: Sequence[Entry]) -> str:
    configs, rows = [], []
    for entry in entries:
        name, path = json.dumps(entry.name), f"{FOLDER}/{entry.name}.parquet"
        configs.append(f"- config_name: {name}\n  data_files: {json.dumps(path)}\n")
        rows.append(f"| {_plain(entry.title)} | {_plain(entry.kind)} | {path} |\n")
    weights, identity = _plain(model.fingerprint), _plain(model.identity or "not known")
    return (
        f"---\nconfigs:\n{''.join(configs)}---\n# What ffnprobe found in {_plain(model.model)}\n\n"
        f"Weights {weights}, identity {identity}. Every file holds its provenance: "
        "`fp.open_result(path)` of a .json, .csv or .parquet gives the tables and the provenance back.\n\n"
        f"| result | kind | file |\n|---|---|---|\n{''.join(rows)}"
    )


def _plain(text: str) -> str:
    """Write a text in one line of Markdown that reads nothing in it as markup."""
    text = escape_bidi(" ".join(text.split()))
    return _MARKUP.sub(lambda match: f"&#{ord(match[0])};", text)

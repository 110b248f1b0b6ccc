"""What a site says of its results: each one's entry, the index that can be searched, and the README."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import xxhash

from ffnprobe.cells import spell_turns
from ffnprobe.documents.blocks import Section, Terms, Words
from ffnprobe.documents.html import write_html
from ffnprobe.provenance import Provenance
from ffnprobe.results import TableSet
from ffnprobe.views.page import wrap

LONGEST_NAME = 60
# Of a survey not every neuron is listed in the index.
NEURONS = 200
SHOWN_NEURONS = 3
HEADS = {"result": "text", "kind": "text", "asked": "text", "rows": "number", "neurons": "text"}
FOLDER = "results"
SUFFIXES = (".json", ".csv", ".parquet")
HOW_TO_READ = (
    "A grade counts kinds of evidence for a neuron; it does not say where a fact is stored. "
    "Pushes add up to a logit, effects do not. Results of other weights are not in this site."
)
# What Markdown or HTML may read as markup.
_MARKUP = re.compile(r"[!-&*+/:-@\[-`{-~]")


@dataclass(frozen=True)
class Entry:
    """One published result: its name, what it is of, and what a search finds it by."""

    name: str
    title: str
    kind: str
    asked: str
    rows: int
    neurons: list[str]


def describe(held: TableSet, data: bytes) -> Entry:
    """Describe a result; its name is made from its JSON, the same whoever publishes it."""
    words = re.sub(r"[^a-z0-9]+", "-", held.title.lower()).strip("-")[:LONGEST_NAME].strip("-")
    known = held.provenance
    asked = " ".join(known.tokens or ()) if known.prompt is None else known.prompt
    if known.prompt is not None and known.answer is not None:
        asked += f" → {known.answer}"
    named = [str(name) for table in held.named.values() for name in table.get("name", ())]
    return Entry(
        name=f"{words or 'result'}-{xxhash.xxh3_64_hexdigest(data)[:8]}",
        title=held.title,
        kind=held.kind,
        asked=asked,
        rows=len(held.table),
        neurons=list(dict.fromkeys(named))[:NEURONS],
    )


def write_index(known: Provenance, entries: Sequence[Entry]) -> str:
    """Write the index as a page."""
    said = (
        f"{len(entries):,} result{'s' * (len(entries) != 1)} of one model, each with its tables, its "
        "provenance and its data. Type to search: a word, a token, a neuron."
    )
    about = Terms(
        {
            "model": known.model,
            "source": str(known.source),
            "weights": known.fingerprint,
            "identity": known.identity or "not known",
        }
    )
    ends = [
        Section("The model", lambda: [about]),
        Section("How to read it", lambda: [Words(HOW_TO_READ)]),
    ]
    body = f"{write_html([Words(said)])}{_table(entries)}{write_html(ends)}"
    return wrap(f"What ffnprobe found in {known.model}", body)


def write_links(entry: Entry) -> str:
    """Write the line on top of a result's page: back to the index, and its data."""
    files = ", ".join(
        f'<a href="{escape(entry.name + suffix)}" download>{suffix[1:]}</a>' for suffix in SUFFIXES
    )
    return f'<p class="soft"><a href="../index.html">all results</a> · data: {files}</p>'


def write_readme(known: Provenance, entries: Sequence[Entry]) -> str:
    """Write the card of a data set: what the files are, and how to load them."""
    configs = "\n".join(
        f"- config_name: {json.dumps(entry.name)}\n  data_files: {json.dumps(f'{FOLDER}/{entry.name}.parquet')}"
        for entry in entries
    )
    rows = "\n".join(
        f"| {_plain(entry.title)} | {_plain(entry.kind)} | {FOLDER}/{entry.name}.parquet |"
        for entry in entries
    )
    weights, identity = _plain(known.fingerprint), _plain(known.identity or "not known")
    return (
        f"---\nconfigs:\n{configs}\n---\n# What ffnprobe found in {_plain(known.model)}\n\n"
        f"Weights {weights}, identity {identity}. Every file holds its provenance: "
        "`fp.open_result(path)` of a .json, .csv or .parquet gives the tables and the provenance back.\n\n"
        f"| result | kind | file |\n|---|---|---|\n{rows}\n"
    )


def _table(entries: Sequence[Entry]) -> str:
    heads = "".join(
        f'<th scope="col" aria-sort="none" data-type="{kind}"><button type="button">{name}</button></th>'
        for name, kind in HEADS.items()
    )
    return (
        '<div class="bar"><input type="search" data-table="results" placeholder="search" '
        'aria-label="search the results"><span class="soft"></span></div>'
        f'<div class="scroll"><table class="sortable" id="results"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(map(_row, entries))}</tbody></table></div>"
    )


def _row(entry: Entry) -> str:
    first, rest = entry.neurons[:SHOWN_NEURONS], entry.neurons[SHOWN_NEURONS:]
    # What is hidden is found by a search all the same.
    more = f" … <span hidden>{escape(' '.join(rest))}</span>" if rest else ""
    return (
        f'<tr><td style="white-space:normal"><a href="{FOLDER}/{escape(entry.name)}.html">{escape(spell_turns(entry.title))}</a></td>'
        f"<td>{escape(entry.kind)}</td><td>{escape(spell_turns(entry.asked))}</td>"
        f"<td class=number>{entry.rows:,}</td><td>{escape(' '.join(first))}{more}</td></tr>"
    )


def _plain(text: str) -> str:
    """Write a text in one line of Markdown that reads nothing in it as markup."""
    text = spell_turns(" ".join(text.split()))
    return _MARKUP.sub(lambda found: f"&#{ord(found[0])};", text)

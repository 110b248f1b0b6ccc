"""Read the field's own files of facts, as they are.

    pocket                  the embedded model's own table
    .csv .tsv               prompt,answer · subject,relation,answer · athlete,sport
    .json                   an LRE relation · ROME's known_1000 · CounterFact
    .jsonl                  LAMA · ParaRel
    a folder                every LRE relation in it, or every file of LAMA or ParaRel

Where a relation has several templates, `templates="first"` uses the first and "all" every one.

>>> table = read_facts("pocket")
>>> table.rows[0].prompt, table.rows[0].answer
('The author of Pride and Prejudice is', ' Austen')
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from ffnprobe.arguments import show
from ffnprobe.errors import DataRefused
from ffnprobe.facts.csv_facts import read_csv, read_frame
from ffnprobe.facts.rows import (
    FactRow,
    FactTable,
    Found,
    Problem,
    check_templates,
    fill_templates,
    gather,
    is_answer_last,
    space,
)
from ffnprobe.files import parse_json, safe_read
from ffnprobe.models import pocket

if TYPE_CHECKING:
    import pandas as pd


# MERGED: ffnprobe.facts.json_facts
# Facts in JSON: LRE relations, ROME's known_1000, CounterFact.
#
#     LRE          an object a relation: `name`, `prompt_templates`, `prompt_templates_zs` (zero-shot:
#                  these come first), `samples` of `subject` and `object`. Some objects and subjects
#                  of the published files end in a space ("Bon Jovi "): they are used as they are
#     ROME         a list: `prompt` (already filled in; it may be longer than `template`), `attribute`,
#                  `subject`, `relation_id`. `prediction` is GPT-2 XL's and is not read
#     CounterFact  a list: in `requested_rewrite` the template `prompt`, `subject`, `relation_id`, and
#                  `target_true`, which is the answer; `target_new` is not true and is not read
#
# Objects, attributes and targets are words: one space comes before the answer. Parsed JSON has no
# line numbers: rows are counted from 1 (`entry 12`).
#
# Facts in JSON lines with `[X]`/`[Y]` patterns: LAMA and ParaRel.
#
# A line with `sub_label` and `obj_label` is a fact; its relation is `predicate_id`, the end of `pred`
# (Google-RE), or the file's name. A line with `template` or `pattern` and no subject is a pattern. A
# fact uses its own `template`, or else the patterns found, in this order, in
#
#     the same file                                 patterns above or below the facts
#     relations.jsonl                               LAMA: in the folder, or the one above
#     [pattern_data/]graphs_json/<the file's name>  ParaRel: in the folder, or the one above
#
# Patterns in which text follows the answer ("[Y] is the capital of [X]") cannot be used with a
# left-to-right model; they are skipped where there is another. Labels are words: the pattern says
# whether a space comes before the answer.


KNOWN = "LRE (prompt_templates, samples), ROME (prompt, attribute), CounterFact (requested_rewrite)"

LAMA_PATTERNS = "relations.jsonl"
PARAREL_FOLDERS = ("graphs_json", "pattern_data/graphs_json")
Patterns = dict[str, list[str]]


def read_jsonl(path: Path, *, templates: str) -> list[Found]:
    """Read the facts of one JSON-lines file."""
    lines = list(_parse(path))
    facts = [(line, entry) for line, entry in lines if entry is None or "sub_label" in entry]
    if not any(entry is not None for _, entry in facts):
        raise DataRefused(
            f"{path.name} has no facts: no line has sub_label and obj_label.",
            remedy="a file of LAMA's TREx or ParaRel's trex_lms_vocab",
        )
    known = _find_patterns(path, lines)
    found: list[Found] = []
    for line, entry in facts:
        where = f"{path.name} line {line}"
        if entry is None:
            found.append(Problem(where, "not a JSON object"))
            continue
        relation = _relation(entry, path)
        own = [entry["template"]] if isinstance(entry.get("template"), str) else []
        patterns = own or known.get(relation, [])
        asked_by = [pattern for pattern in patterns if is_answer_last(pattern)] or patterns[:1]
        asked_by = asked_by[:1] if templates == "first" else asked_by
        subject, answer = _label(entry["sub_label"]), _label(entry.get("obj_label"))
        found += fill_templates(subject, answer, relation, asked_by, where)
    return found


def has_facts(path: Path) -> bool:
    """Say whether a JSON-lines file holds facts, not only patterns or something else."""
    return any(entry is not None and "sub_label" in entry for _, entry in _parse(path))


def _parse(path: Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Yield each line's number and object; None where the line is not an object."""
    lines = safe_read(path).decode("utf-8-sig").split("\n")
    for number, text in enumerate(lines, start=1):
        if text.strip():
            try:
                entry = parse_json(text, where="it")
            except DataRefused:
                entry = None
            yield number, entry if isinstance(entry, dict) else None


def _label(value: Any) -> str:
    """Return a label's text: LAMA has numbers among them; anything else is none."""
    return str(value) if isinstance(value, str | int | float) else ""


def _relation(entry: Mapping[str, Any], path: Path) -> str:
    named = entry.get("predicate_id") or entry.get("relation")
    return str(named or str(entry.get("pred", "")).rpartition("/")[2] or path.stem)


def _find_patterns(path: Path, lines: list[tuple[int, dict[str, Any] | None]]) -> Patterns:
    """Collect the patterns of each relation, from the first file that has any."""
    found = _collect((entry for _, entry in lines), path)
    folders = (path.parent, path.parent.parent)
    files = [folder / LAMA_PATTERNS for folder in folders]
    files += [folder / inner / path.name for folder in folders for inner in PARAREL_FOLDERS]
    for file in files:
        if found:
            break
        if file.is_file() and file != path:
            found = _collect((entry for _, entry in _parse(file)), file)
    return found


def _collect(entries: Iterator[dict[str, Any] | None], path: Path) -> Patterns:
    found: Patterns = {}
    for entry in entries:
        if entry is not None and "sub_label" not in entry:
            text = entry.get("template") or entry.get("pattern")
            if isinstance(text, str):
                found.setdefault(_relation(entry, path), []).append(text)
    return found


def read_json(content: Any, name: str, *, templates: str) -> tuple[str, list[Found]]:
    """Tell which of the formats a parsed JSON file is, and read its facts."""
    if isinstance(content, Mapping) and {"samples", "prompt_templates"} <= set(content):
        return "LRE", list(_read_relation(content, name, templates))
    first = content[0] if isinstance(content, list) and content else None
    if isinstance(first, Mapping):
        if "requested_rewrite" in first:
            return "CounterFact", list(_read_counterfact(content, name))
        if {"prompt", "attribute"} <= set(first):
            return "ROME", list(_read_known(content, name))
    has = content if isinstance(content, Mapping) else first
    fields = ", ".join(map(str, has)) if isinstance(has, Mapping) else "(none)"
    raise DataRefused(
        f"{name} has the fields {fields}, which is not a known format of facts.", remedy=KNOWN
    )


def _read_relation(content: Mapping[str, Any], name: str, templates: str) -> Iterator[Found]:
    listed = [
        template
        for field in ("prompt_templates_zs", "prompt_templates")
        for template in _list(content.get(field, []), field, name)
    ]
    if odd := [template for template in listed if not isinstance(template, str)]:
        raise DataRefused(
            f"{name}: among its templates is {show(odd[0])}; a template is text.",
            remedy='"prompt_templates": ["{} plays the sport of"]',
        )
    asked_by = list(dict.fromkeys(listed))
    asked_by = asked_by[:1] if templates == "first" else asked_by
    relation = _text(content, "name") or name
    for number, sample in enumerate(_list(content["samples"], "samples", name), start=1):
        subject, answer = _text(sample, "subject"), _text(sample, "object")
        yield from fill_templates(subject, answer, relation, asked_by, f"{name} entry {number}")


def _read_known(content: list[Any], name: str) -> Iterator[Found]:
    for number, entry in enumerate(content, start=1):
        where = f"{name} entry {number}"
        prompt, answer = _text(entry, "prompt"), _text(entry, "attribute")
        if not prompt.strip() or not answer.strip():
            yield Problem(where, "no prompt" if not prompt.strip() else "no answer (attribute)")
            continue
        relation, subject = _text(entry, "relation_id"), _text(entry, "subject")
        yield FactRow(prompt, space(answer), relation, subject, where)


def _read_counterfact(content: list[Any], name: str) -> Iterator[Found]:
    for number, entry in enumerate(content, start=1):
        asked = entry.get("requested_rewrite") if isinstance(entry, Mapping) else None
        answer = _text(asked.get("target_true"), "str") if isinstance(asked, Mapping) else ""
        yield from fill_templates(
            _text(asked, "subject"), answer, _text(asked, "relation_id"),
            [_text(asked, "prompt")], f"{name} entry {number}",
        )  # fmt: skip


def _list(value: Any, field: str, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise DataRefused(f"{name}: {field} is {show(value)}; it must be a list.")
    return value


def _text(entry: Any, field: str) -> str:
    """Return a field's text; a field that is missing or is not text is empty."""
    value = entry.get(field) if isinstance(entry, Mapping) else None
    return value if isinstance(value, str) else ""


Facts = Union[str, Path, Sequence[FactRow], "pd.DataFrame"]
EMBEDDED = "pocket"
SUFFIXES = (".csv", ".tsv", ".json", ".jsonl")


def read_facts(facts: Facts, *, templates: str = "first") -> FactTable:
    """Read a table of facts: `pocket`, a file, a folder, a DataFrame, or rows made already."""
    check_templates(templates)
    if not isinstance(facts, str | Path):
        import pandas as pd

        if isinstance(facts, pd.DataFrame):
            form, found = read_frame(facts, templates=templates)
            return _filled(gather(found, source="a DataFrame", format=form))
        numbered = [_numbered(row, order) for order, row in enumerate(facts)]
        return _filled(gather(numbered, source="rows", format="FactRow"))
    if facts == EMBEDDED:
        return gather(_read_pocket(templates), source=EMBEDDED, format="pocket's own table")
    path = Path(facts).expanduser()
    if not os.path.exists(path):
        raise DataRefused(f"there is no file or folder {facts}.", remedy='"pocket" has facts')
    try:
        form, found = _read_folder(path, templates) if path.is_dir() else _read(path, templates)
    except UnicodeDecodeError as error:
        raise DataRefused(f"{path} is not UTF-8: byte {error.start}.") from None
    return _filled(gather(found, source=path.name, format=form))


def _read(path: Path, templates: str) -> tuple[str, list[Found]]:
    suffix = path.suffix.lower()
    if suffix in (".csv", ".tsv"):
        return read_csv(path, templates=templates)
    if suffix == ".jsonl":
        return "LAMA or ParaRel", read_jsonl(path, templates=templates)
    if suffix == ".json":
        content = parse_json(safe_read(path), where=path.name)
        return read_json(content, path.name, templates=templates)
    raise DataRefused(
        f'"{path.suffix}" is not a format of facts ({path.name}).',
        remedy=f"pocket, a folder, or {', '.join(SUFFIXES)}",
    )


def _read_folder(path: Path, templates: str) -> tuple[str, list[Found]]:
    """Read every file of facts in a folder and the folders in it, in the order of their names."""
    files = sorted(path.rglob("*.json"))
    files = files or [file for file in sorted(path.rglob("*.jsonl")) if has_facts(file)]
    if not files:
        raise DataRefused(
            f"{path} holds no facts.", remedy="a folder of LRE relations (.json) or LAMA (.jsonl)"
        )
    read = [_read(file, templates) for file in files]
    return ", ".join(sorted({form for form, _ in read})), [row for _, rows in read for row in rows]


def _read_pocket(templates: str) -> Iterator[FactRow]:
    lines = {fact: number + 2 for number, fact in enumerate(pocket.facts())}  # line 1: the header
    seen: set[pocket.Fact] = set()
    for prompt in pocket.prompts():
        fact = prompt.fact
        if templates == "all" or fact not in seen:
            where = f"facts.csv line {lines[fact]}"
            yield FactRow(prompt.text, fact.answer, fact.relation, fact.subject, where)
        seen.add(fact)


def _numbered(row: FactRow, order: int) -> FactRow:
    if row.where:
        return row
    return FactRow(row.prompt, row.answer, row.relation, row.subject, f"row {order}")


def _filled(table: FactTable) -> FactTable:
    if not table.rows and not table.problems:
        raise DataRefused(f"{table.source} has no rows.")
    return table

"""Read the field's own files of facts, as they are.

    pocket                  the embedded model's own table
    .csv .tsv DataFrame     prompt,answer · subject,relation,answer · athlete,sport
    .json                   an LRE relation · ROME's known_1000 · CounterFact
    .jsonl                  LAMA · ParaRel
    a folder                every LRE relation in it, or every file of LAMA or ParaRel

Where a relation has several templates, `templates="first"` uses the first and "all" every one.

Rows and columns, in any order (tsv files are read without quoting):

    prompt,answer             the answer follows the prompt exactly as written, with or without a
                              leading space; `relation` and `subject` are optional columns
    subject,relation,answer   the relation is a template ("{} plays the sport of"), or a name whose
                              template is in a column `template` or in a file `templates.csv`
                              (relation,template) in the table's folder; one space before the answer
    athlete,sport             the athletes of "Fact Finding", with the file's own one-shot `prompt`;
                              its other columns belong to another model's tokenizer

JSON, whose rows are counted from 1 (`entry 12`); one space comes before the answer:

    LRE          an object a relation: `name`, `prompt_templates`, `prompt_templates_zs` (zero-shot:
                 these come first), `samples` of `subject` and `object`. Some objects and subjects
                 of the published files end in a space ("Bon Jovi "): they are used as they are
    ROME         a list: `prompt` (already filled in; it may be longer than `template`), `attribute`,
                 `subject`, `relation_id`. `prediction` is GPT-2 XL's and is not read
    CounterFact  a list: in `requested_rewrite` the template `prompt`, `subject`, `relation_id`, and
                 `target_true`, which is the answer; `target_new` is not true and is not read

JSON lines (LAMA, ParaRel): a line with `sub_label` and `obj_label` is a fact; its relation is
`predicate_id`, the end of `pred` (Google-RE), or the file's name. A line with `template` or `pattern`
and no subject is a pattern. A fact uses its own `template`, or else the patterns found, in this order, in

    the same file                                 patterns above or below the facts
    relations.jsonl                               LAMA: in the folder, or the one above
    [pattern_data/]graphs_json/<the file's name>  ParaRel: in the folder, or the one above

Patterns in which text follows the answer ("[Y] is the capital of [X]") are skipped where there is
another. The pattern says whether a space comes before the answer.

>>> table = read_facts("pocket")
>>> table.rows[0].prompt, table.rows[0].answer
('The author of Pride and Prejudice is', ' Austen')
"""

import csv
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from ffnprobe.arguments import TEMPLATES, show
from ffnprobe.errors import DataRefused, OptionRefused
from ffnprobe.facts.rows import (
    FactRow,
    FactTable,
    Problem,
    fill_templates,
    has_slot,
    is_answer_last,
    space,
    state_fact,
)
from ffnprobe.files import parse_json, safe_read
from ffnprobe.models import pocket

if TYPE_CHECKING:
    import pandas as pd

Facts = Union[str, Path, Sequence[FactRow], "pd.DataFrame"]
Entry = FactRow | Problem
# A row's place and its cells; None where they are not as many as the header's.
Row = tuple[str, Mapping[str, str] | None]
# A line's number and its object; None where it is none.
Line = tuple[int, dict[str, Any] | None]

EMBEDDED = "pocket"
SUFFIXES = (".csv", ".tsv", ".json", ".jsonl")
COLUMNS = {
    "prompt,answer": ("prompt", "answer"),
    "subject,relation,answer": ("subject", "relation", "answer"),
    "athlete,sport": ("athlete", "sport", "prompt"),
}
CSV_TEMPLATES = "templates.csv"
LAMA_PATTERNS = "relations.jsonl"
PARAREL_FOLDERS = ("graphs_json", "pattern_data/graphs_json")
JSON_FORMATS = (
    "LRE (prompt_templates, samples), ROME (prompt, attribute), CounterFact (requested_rewrite)"
)


def read_facts(facts: Facts, *, templates: str = "first") -> FactTable:
    """Read a table of facts: `pocket`, a file, a folder, a DataFrame, or rows made already."""
    if templates not in TEMPLATES.choices:
        raise OptionRefused(
            f'"{templates}" is not a choice of templates.', remedy=", ".join(TEMPLATES.choices)
        )
    most = 1 if templates == "first" else None  # so many templates of each fact
    if isinstance(facts, str | Path):
        source, form, entries = _read_named(facts, most)
    else:
        source, form, entries = _read_memory(facts, most)
    rows: dict[tuple[str, str, str], FactRow] = {}
    problems: list[Problem] = []
    for entry in entries:
        if isinstance(entry, Problem):
            problems.append(entry)
            continue
        first = rows.setdefault((entry.relation, entry.prompt, entry.answer), entry)
        if first is not entry:
            problems.append(Problem(entry.where, f"the same fact as {first.where}"))
    if not rows and not problems:
        raise DataRefused(f"{source} has no rows.")
    return FactTable(source, form, tuple(rows.values()), tuple(problems))


def _read_memory(
    facts: "Sequence[FactRow] | pd.DataFrame", most: int | None
) -> tuple[str, str, list[Entry]]:
    import pandas as pd

    if not isinstance(facts, pd.DataFrame):
        rows = [row if row.where else replace(row, where=f"row {n}") for n, row in enumerate(facts)]
        return "rows", "FactRow", list(rows)
    header = [str(column) for column in facts.columns]
    texts = facts.astype(object).where(facts.notna(), "").astype(str)
    cells = (
        dict(zip(header, row, strict=True)) for row in texts.itertuples(index=False, name=None)
    )
    numbered = ((f"row {number}", row) for number, row in enumerate(cells))
    return "a DataFrame", *_read_table(header, numbered, "the table", None, most)


def _read_named(facts: str | Path, most: int | None) -> tuple[str, str, list[Entry]]:
    if facts == EMBEDDED:
        return EMBEDDED, "pocket's own table", list(_read_pocket(most))
    path = Path(facts).expanduser()
    if not os.path.exists(path):
        raise DataRefused(f"there is no file or folder {facts}.", remedy='"pocket" has facts')
    read = _read_folder if path.is_dir() else _read_file
    try:
        return path.name, *read(path, most)
    except UnicodeDecodeError as error:
        raise DataRefused(f"{path} is not UTF-8: byte {error.start}.") from None


def _read_pocket(most: int | None) -> Iterator[FactRow]:
    lines = {fact: number + 2 for number, fact in enumerate(pocket.facts())}  # line 1: the header
    seen: set[pocket.Fact] = set()
    for prompt in pocket.prompts():
        fact = prompt.fact
        if most is None or fact not in seen:
            where = f"facts.csv line {lines[fact]}"
            yield FactRow(prompt.text, fact.answer, fact.relation, fact.subject, where)
        seen.add(fact)


def _read_folder(path: Path, most: int | None) -> tuple[str, list[Entry]]:
    """Read every file of facts in a folder and the folders in it, in the order of their names."""
    files = sorted(path.rglob("*.json"))
    files = files or [
        file
        for file in sorted(path.rglob("*.jsonl"))
        if any(line is not None and "sub_label" in line for _, line in _read_lines(file))
    ]
    if not files:
        raise DataRefused(
            f"{path} holds no facts.", remedy="a folder of LRE relations (.json) or LAMA (.jsonl)"
        )
    read = [_read_file(file, most) for file in files]
    forms = sorted({form for form, _ in read})
    return ", ".join(forms), [entry for _, entries in read for entry in entries]


def _read_file(path: Path, most: int | None) -> tuple[str, list[Entry]]:
    suffix = path.suffix.lower()
    if suffix in (".csv", ".tsv"):
        return _read_table(*_read_cells(path), path.name, path.parent / CSV_TEMPLATES, most)
    if suffix == ".jsonl":
        return "LAMA or ParaRel", _read_jsonl(path, most)
    if suffix == ".json":
        return _read_json(parse_json(safe_read(path), where=path.name), path.name, most)
    raise DataRefused(
        f'"{path.suffix}" is not a format of facts ({path.name}).',
        remedy=f"pocket, a folder, or {', '.join(SUFFIXES)}",
    )


def _read_table(
    header: Sequence[str], rows: Iterable[Row], name: str, beside: Path | None, most: int | None
) -> tuple[str, list[Entry]]:
    """Read rows and columns; `beside` is the file of templates in the table's folder."""
    forms = [form for form, columns in COLUMNS.items() if set(columns) <= set(header)]
    if not forms:
        nearest = min(COLUMNS.values(), key=lambda columns: len(set(columns) - set(header)))
        missing = ", ".join(column for column in nearest if column not in header)
        raise DataRefused(
            f"{name} has the columns {', '.join(header) or '(none)'}; missing: {missing}.",
            remedy=" or ".join(COLUMNS),
        )
    named = _read_templates(beside) if forms[0] == "subject,relation,answer" else {}
    entries: list[Entry] = []
    for where, cells in rows:
        if cells is None:
            entries.append(Problem(where, f"not the {len(header)} cells of the header"))
        elif forms[0] == "subject,relation,answer":
            relation = cells["relation"]
            own = cells.get("template") or (relation if has_slot(relation) else "")
            asked_by = ([own] if own else named.get(relation, []))[:most]
            entries += fill_templates(cells["subject"], cells["answer"], relation, asked_by, where)
        elif forms[0] == "athlete,sport":
            answer = space(cells["sport"])
            entries.append(state_fact(cells["prompt"], answer, "sport", cells["athlete"], where))
        else:
            about = cells.get("relation", ""), cells.get("subject", "")
            entries.append(state_fact(cells["prompt"], cells["answer"], *about, where))
    return forms[0], entries


def _read_templates(path: Path | None) -> dict[str, list[str]]:
    """Read the templates of named relations, if there is a file of them."""
    templates: dict[str, list[str]] = {}
    if path is not None and path.is_file():
        header, rows = _read_cells(path)
        if {"relation", "template"} <= set(header):
            for _, cells in rows:
                if cells is not None:
                    templates.setdefault(cells["relation"], []).append(cells["template"])
    return templates


def _read_cells(path: Path) -> tuple[list[str], list[Row]]:
    """Return the header, and each row with the line it begins on."""
    is_tabbed = path.suffix.lower() == ".tsv"
    lines = csv.reader(
        io.StringIO(safe_read(path).decode("utf-8-sig"), newline=""),
        delimiter="\t" if is_tabbed else ",",
        quoting=csv.QUOTE_NONE if is_tabbed else csv.QUOTE_MINIMAL,
    )
    numbered, start = [], 1
    try:
        for cells in lines:
            numbered.append((f"{path.name} line {start}", cells))
            start = lines.line_num + 1
    except csv.Error as error:
        raise DataRefused(f"{path.name} line {lines.line_num}: {error}.") from None
    header = numbered[0][1] if numbered else []
    return header, [
        (where, dict(zip(header, cells, strict=True)) if len(cells) == len(header) else None)
        for where, cells in numbered[1:]
        if cells
    ]


def _read_json(content: Any, name: str, most: int | None) -> tuple[str, list[Entry]]:
    """Tell which of the formats a parsed JSON file is, and read its facts."""
    if isinstance(content, Mapping) and {"samples", "prompt_templates"} <= set(content):
        return "LRE", list(_read_relation(content, name, most))
    first = content[0] if isinstance(content, list) and content else None
    if isinstance(first, Mapping):
        if "requested_rewrite" in first:
            return "CounterFact", list(_read_counterfact(content, name))
        if {"prompt", "attribute"} <= set(first):
            return "ROME", list(_read_known(content, name))
    outer = content if isinstance(content, Mapping) else first
    fields = ", ".join(map(str, outer)) if isinstance(outer, Mapping) else "(none)"
    raise DataRefused(
        f"{name} has the fields {fields}, which is not a known format of facts.",
        remedy=JSON_FORMATS,
    )


def _read_relation(content: Mapping[str, Any], name: str, most: int | None) -> Iterator[Entry]:
    patterns = [
        pattern
        for field in ("prompt_templates_zs", "prompt_templates")
        for pattern in _list(content.get(field, []), field, name)
    ]
    if odd := [pattern for pattern in patterns if not isinstance(pattern, str)]:
        raise DataRefused(
            f"{name}: among its templates is {show(odd[0])}; a template is text.",
            remedy='"prompt_templates": ["{} plays the sport of"]',
        )
    asked_by = list(dict.fromkeys(patterns))[:most]
    relation = _text(content, "name") or name
    for number, sample in enumerate(_list(content["samples"], "samples", name), start=1):
        subject, answer = _text(sample, "subject"), _text(sample, "object")
        yield from fill_templates(subject, answer, relation, asked_by, f"{name} entry {number}")


def _read_known(content: list[Any], name: str) -> Iterator[Entry]:
    for number, entry in enumerate(content, start=1):
        fields = ("prompt", "attribute", "relation_id", "subject")
        prompt, answer, relation, subject = (_text(entry, field) for field in fields)
        where = f"{name} entry {number}"
        yield state_fact(
            prompt, space(answer), relation, subject, where, named="answer (attribute)"
        )


def _read_counterfact(content: list[Any], name: str) -> Iterator[Entry]:
    for number, entry in enumerate(content, start=1):
        asked = entry.get("requested_rewrite") if isinstance(entry, Mapping) else None
        answer = _text(asked.get("target_true"), "str") if isinstance(asked, Mapping) else ""
        subject, relation = _text(asked, "subject"), _text(asked, "relation_id")
        template, where = _text(asked, "prompt"), f"{name} entry {number}"
        yield from fill_templates(subject, answer, relation, [template], where)


def _list(value: Any, field: str, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise DataRefused(f"{name}: {field} is {show(value)}; it must be a list.")
    return value


def _text(entry: Any, field: str) -> str:
    """Return a field's text; a field that is missing or is not text is empty."""
    value = entry.get(field) if isinstance(entry, Mapping) else None
    return value if isinstance(value, str) else ""


def _read_jsonl(path: Path, most: int | None) -> list[Entry]:
    lines = list(_read_lines(path))
    facts = [(number, line) for number, line in lines if line is None or "sub_label" in line]
    if not any(line is not None for _, line in facts):
        raise DataRefused(
            f"{path.name} has no facts: no line has sub_label and obj_label.",
            remedy="a file of LAMA's TREx or ParaRel's trex_lms_vocab",
        )
    by_relation = _find_patterns(path, lines)
    entries: list[Entry] = []
    for number, line in facts:
        where = f"{path.name} line {number}"
        if line is None:
            entries.append(Problem(where, "not a JSON object"))
            continue
        relation, own = _relation(line, path), line.get("template")
        patterns = [own] if isinstance(own, str) else by_relation.get(relation, [])
        usable = [pattern for pattern in patterns if is_answer_last(pattern)] or patterns[:1]
        subject, answer = _label(line["sub_label"]), _label(line.get("obj_label"))
        entries += fill_templates(subject, answer, relation, usable[:most], where)
    return entries


def _read_lines(path: Path) -> Iterator[Line]:
    for number, text in enumerate(safe_read(path).decode("utf-8-sig").split("\n"), start=1):
        if text.strip():
            try:
                line = parse_json(text, where="it")
            except DataRefused:
                line = None
            yield number, line if isinstance(line, dict) else None


def _label(value: Any) -> str:
    """Return a label's text: LAMA has numbers among them; anything else is none."""
    return str(value) if isinstance(value, str | int | float) else ""


def _relation(line: Mapping[str, Any], path: Path) -> str:
    named = line.get("predicate_id") or line.get("relation")
    return str(named or str(line.get("pred", "")).rpartition("/")[2] or path.stem)


def _find_patterns(path: Path, lines: Iterable[Line]) -> dict[str, list[str]]:
    """Collect the patterns of each relation, from the first file that has any."""
    folders = (path.parent, path.parent.parent)
    files = [folder / LAMA_PATTERNS for folder in folders]
    files += [folder / inner / path.name for folder in folders for inner in PARAREL_FOLDERS]
    others = [file for file in files if file.is_file() and file != path]
    for file, each in ((path, lines), *((other, _read_lines(other)) for other in others)):
        patterns: dict[str, list[str]] = {}
        for _, line in each:
            if line is not None and "sub_label" not in line:
                text = line.get("template") or line.get("pattern")
                if isinstance(text, str):
                    patterns.setdefault(_relation(line, file), []).append(text)
        if patterns:
            return patterns
    return {}

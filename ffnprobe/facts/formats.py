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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Union

from ffnprobe.errors import DataRefused
from ffnprobe.facts.csv_facts import read_csv, read_frame
from ffnprobe.facts.json_facts import has_facts, read_json, read_jsonl
from ffnprobe.facts.rows import FactRow, FactTable, Found, gather
from ffnprobe.facts.templates import check_templates
from ffnprobe.inputs import parse_json, read_input
from ffnprobe.models import pocket

if TYPE_CHECKING:
    import pandas as pd

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
        content = parse_json(read_input(path), where=path.name)
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

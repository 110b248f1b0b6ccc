"""Facts in rows and columns: csv, tsv, or a pandas DataFrame.

    prompt,answer             the answer follows the prompt exactly as written, with or without a
                              leading space; `relation` and `subject` are optional columns
    subject,relation,answer   the relation is a template ("{} plays the sport of"), or a name whose
                              template is in a column `template` or in a file `templates.csv`
                              (relation,template) in the table's folder; one space before the answer
    athlete,sport             the athletes of "Fact Finding", with the file's own one-shot `prompt`;
                              its other columns belong to another model's tokenizer

Columns may be in any order, and others are ignored. tsv files are read without quoting, as they are
written.
"""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ffnprobe.errors import DataRefused
from ffnprobe.facts.rows import FactRow, Found, Problem, fill_templates, has_slot, space
from ffnprobe.files import safe_read

if TYPE_CHECKING:
    import pandas as pd

FORMS = {
    "prompt,answer": ("prompt", "answer"),
    "subject,relation,answer": ("subject", "relation", "answer"),
    "athlete,sport": ("athlete", "sport", "prompt"),
}
TEMPLATES = "templates.csv"
Row = tuple[str, Mapping[str, str] | None]


def read_csv(path: Path, *, templates: str) -> tuple[str, list[Found]]:
    """Read a csv or tsv file: the form of its columns, and its rows."""
    header, rows = _read_cells(path)
    return form_of(header, path.name), list(_read(rows, header, path, templates))


def read_frame(frame: "pd.DataFrame", *, templates: str) -> tuple[str, list[Found]]:
    """Read a DataFrame with the columns of a csv; rows count from 0, as in its index."""
    header = [str(column) for column in frame.columns]
    plain = frame.astype(object).where(frame.notna(), "").astype(str)
    rows: list[Row] = [
        (f"row {number}", dict(zip(header, cells, strict=True)))
        for number, cells in enumerate(plain.itertuples(index=False, name=None))
    ]
    return form_of(header, "the table"), list(_read(iter(rows), header, None, templates))


def form_of(header: Sequence[str], name: str) -> str:
    """Say which form of table a header is, or which are known and what is missing."""
    for form, columns in FORMS.items():
        if set(columns) <= set(header):
            return form
    nearest = min(FORMS.values(), key=lambda columns: len(set(columns) - set(header)))
    missing = ", ".join(column for column in nearest if column not in header)
    raise DataRefused(
        f"{name} has the columns {', '.join(header) or '(none)'}; missing: {missing}.",
        remedy=" or ".join(FORMS),
    )


def _read(
    rows: Iterator[Row], header: Sequence[str], path: Path | None, templates: str
) -> Iterator[Found]:
    form = form_of(header, "the table")
    named = _read_templates(path) if form == "subject,relation,answer" else {}
    for where, cells in rows:
        if cells is None:
            yield Problem(where, f"not the {len(header)} cells of the header")
        elif form == "subject,relation,answer":
            relation = cells["relation"]
            own = cells.get("template") or (relation if has_slot(relation) else "")
            known = [own] if own else named.get(relation, [])
            asked_by = known[:1] if templates == "first" else known
            yield from fill_templates(cells["subject"], cells["answer"], relation, asked_by, where)
        elif form == "athlete,sport":
            answer = space(cells["sport"]) if cells["sport"].strip() else ""
            yield _state(cells["prompt"], answer, "sport", cells["athlete"], where)
        else:
            relation, subject = cells.get("relation", ""), cells.get("subject", "")
            yield _state(cells["prompt"], cells["answer"], relation, subject, where)


def _state(prompt: str, answer: str, relation: str, subject: str, where: str) -> Found:
    for name, text in (("prompt", prompt), ("answer", answer)):
        if not text.strip():
            return Problem(where, f"no {name}")
    return FactRow(prompt, answer, relation, subject, where)


def _read_templates(path: Path | None) -> dict[str, list[str]]:
    """Read the templates of named relations from the file in the table's folder, if there is one."""
    found: dict[str, list[str]] = {}
    if path is not None and (path.parent / TEMPLATES).is_file():
        header, rows = _read_cells(path.parent / TEMPLATES)
        if {"relation", "template"} <= set(header):
            for _, cells in rows:
                if cells is not None:
                    found.setdefault(cells["relation"], []).append(cells["template"])
    return found


def _read_cells(path: Path) -> tuple[list[str], Iterator[Row]]:
    """Return the header, and each row with the line it begins on (None: cells do not match)."""
    is_tabbed = path.suffix.lower() == ".tsv"
    text = safe_read(path).decode("utf-8-sig")
    with io.StringIO(text, newline="") as file:
        lines = csv.reader(
            file,
            delimiter="\t" if is_tabbed else ",",
            quoting=csv.QUOTE_NONE if is_tabbed else csv.QUOTE_MINIMAL,
        )
        numbered = []
        try:
            start = 1
            for cells in lines:
                numbered.append((start, cells))
                start = lines.line_num + 1
        except csv.Error as error:
            raise DataRefused(f"{path.name} line {lines.line_num}: {error}.") from None
    header = numbered[0][1] if numbered else []
    return header, (
        (
            f"{path.name} line {line}",
            dict(zip(header, cells, strict=True)) if len(cells) == len(header) else None,
        )
        for line, cells in numbered[1:]
        if cells
    )

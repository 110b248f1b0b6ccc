"""Facts in JSON lines with `[X]`/`[Y]` patterns: LAMA and ParaRel.

A line with `sub_label` and `obj_label` is a fact; its relation is `predicate_id`, the end of `pred`
(Google-RE), or the file's name. A line with `template` or `pattern` and no subject is a pattern. A
fact uses its own `template`, or else the patterns found, in this order, in

    the same file                                 patterns above or below the facts
    relations.jsonl                               LAMA: in the folder, or the one above
    [pattern_data/]graphs_json/<the file's name>  ParaRel: in the folder, or the one above

Patterns in which text follows the answer ("[Y] is the capital of [X]") cannot be used with a
left-to-right model; they are skipped where there is another. Labels are words: the pattern says
whether a space comes before the answer.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ffnprobe.errors import DataRefused
from ffnprobe.facts.rows import Found, Problem
from ffnprobe.facts.templates import fill_templates, is_answer_last
from ffnprobe.inputs import parse_json, read_input

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
    lines = read_input(path).decode("utf-8-sig").split("\n")
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

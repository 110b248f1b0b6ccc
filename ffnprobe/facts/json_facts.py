"""Facts in JSON: LRE relations, ROME's known_1000, CounterFact.

    LRE          an object a relation: `name`, `prompt_templates`, `prompt_templates_zs` (zero-shot:
                 these come first), `samples` of `subject` and `object`. Some objects and subjects
                 of the published files end in a space ("Bon Jovi "): they are used as they are
    ROME         a list: `prompt` (already filled in; it may be longer than `template`), `attribute`,
                 `subject`, `relation_id`. `prediction` is GPT-2 XL's and is not read
    CounterFact  a list: in `requested_rewrite` the template `prompt`, `subject`, `relation_id`, and
                 `target_true`, which is the answer; `target_new` is not true and is not read

Objects, attributes and targets are words: one space comes before the answer. Parsed JSON has no
line numbers: rows are counted from 1 (`entry 12`).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ffnprobe.arguments import show
from ffnprobe.errors import DataRefused
from ffnprobe.facts.rows import FactRow, Found, Problem, space
from ffnprobe.facts.templates import fill_templates

KNOWN = "LRE (prompt_templates, samples), ROME (prompt, attribute), CounterFact (requested_rewrite)"


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

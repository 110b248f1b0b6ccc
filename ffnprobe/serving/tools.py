"""The tools: every verb that has a grade, with the options of its signature; `label` and `score` by hand.

Every tool also takes the model's name, a time budget and how many rows to send. Arguments are checked in
the words of Python's own check.

An answer is compact: of a result's first table `rows` rows; what is left of it, and every other table, is
fetched by a cursor. Numbers have five significant digits, which is more than they are worth; files hold all.

>>> schema = write_schema(TOOLS["stages"].parameters)
>>> schema["properties"]["layer"]["default"], schema["required"]
(0, ['prompt'])
"""

import difflib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import pandas as pd
from pydantic import TypeAdapter

from ffnprobe import arguments
from ffnprobe.arguments import Option, check, check_option, show
from ffnprobe.asking import answer
from ffnprobe.cache import LRUCache
from ffnprobe.corpora.scans import embedded_scan
from ffnprobe.documents.blocks import Table
from ffnprobe.errors import DataRefused, OptionRefused
from ffnprobe.facts.rows import FactRow
from ffnprobe.labels.stored_labels import Labels, find_labels
from ffnprobe.layout import is_null
from ffnprobe.models.model import Model
from ffnprobe.provenance import Provenance
from ffnprobe.results import Result
from ffnprobe.serving.budgets import Budget
from ffnprobe.verbs import REQUIRED, VERBS, Parameter, Verb

if TYPE_CHECKING:
    from ffnprobe.serving.service import Service

DIGITS = 5
LONGEST_CELL = 300
KEPT_ANSWERS, KEPT_BYTES = 64, 256 * 2**20
LONGEST_TEXT = 20_000
# Agents type no command, reach only what is served, and must not ask for more than fits in memory.
FOR_AGENTS: dict[str, dict[str, Any]] = {
    "contrast_from": {"words": 'Take contrast prompts from a table of facts that is served: "pocket".'},
    "Model": {"words": "The other model, one of those served."},
    "keep": {"most": 1000},
    "generate": {"least": 0, "most": 200},
}  # fmt: skip
MODEL, SECONDS, ROWS, CURSOR, FACTS = (
    Parameter("model", None, Option("Which model to ask.", default="the first one served"), str | None),
    Parameter("seconds", 60.0, Option("Time budget; beyond it the question is stopped.", least=0, most=3600), float),
    Parameter("rows", 20, Option("How many rows to send; the rest by the cursor.", least=1, most=200), int),
    Parameter("cursor", REQUIRED, Option("Where to go on, as an answer gave it."), str),
    Parameter("facts", REQUIRED, Option('A table that is served ("pocket"), or facts.', longest=5000), str | list[dict[str, Any]]),
)  # fmt: skip
FACT = (
    Parameter("prompt", REQUIRED, Option("The prompt."), str),
    Parameter("answer", REQUIRED, Option("The text that truly follows it.", longest=200), str),
    Parameter("relation", "", Option("What kind of fact it is."), str),
    Parameter("subject", "", Option("What it is about."), str),
)
SUMMARIES = (
    Parameter("by_relation", False, arguments.BY_RELATION, bool),
    Parameter("overlap", False, arguments.OVERLAP, bool),
    Parameter("remove", None, arguments.REMOVE, str | None),
    Parameter("hubs", False, arguments.HUBS, bool),
    Parameter("seed", 0, get_args(arguments.Seed)[1], int),
)
Answer = dict[str, Any]
Given = dict[str, Any]


class Found(NamedTuple):
    """What a tool found: a result, what is shown of it, what is said beside it."""

    result: Result
    tables: "Mapping[str, pd.DataFrame]"
    notes: Sequence[str] = ()
    provenance: Provenance | None = None  # if it is not the result's own


class Answers:
    """Write answers, and keep the last of them so that cursors can be followed."""

    def __init__(self) -> None:
        self._kept = LRUCache(most=KEPT_ANSWERS, most_bytes=KEPT_BYTES)

    def write(self, work: Found, *, grade: str, rows: int) -> Answer:
        result, key = work.result, secrets.token_urlsafe(9)
        about = {
            "title": result.headline,
            "grade": getattr(result, "graded", grade),
            "how_to_read": result.caption,
            "provenance": (work.provenance or result.provenance).as_dict(),
        }
        # A cursor leads back to tables, not to the trace and the model they were made from.
        tables = {name: Table(table).shown for name, table in work.tables.items()}
        size = sum(int(table.memory_usage(deep=True).sum()) for table in tables.values())
        self._kept.put(key, (about, tables), size)
        first, *others = tables
        answer = self.follow(f"{key}.{first}.0", rows=rows)
        if others:
            answer["more_tables"] = {
                name: {"rows": len(tables[name]), "cursor": f"{key}.{name}.0"} for name in others
            }
        return answer | ({"notes": list(work.notes)} if work.notes else {})

    def follow(self, cursor: str, *, rows: int) -> Answer:
        """Write the next rows that a cursor leads to."""
        key, _, rest = cursor.partition(".")
        name, _, start = rest.rpartition(".")
        held: tuple[Answer, dict[str, pd.DataFrame]] = self._kept.get(key) or ({}, {})
        about, tables = held
        if name not in tables or not start.isdecimal():
            why = f'the cursor "{cursor[:40]}" leads nowhere (any more).'
            raise OptionRefused(why, remedy="ask the question again")
        table, end = tables[name], int(start) + rows
        part = table.iloc[int(start) : end]
        return {
            **about,
            "table": name,
            "columns": [str(column) for column in table.columns],
            "rows": [[_plain(value) for value in row] for row in part.itertuples(index=False)],
            "rows_in_all": len(table),
            "cursor": f"{key}.{name}.{end}" if end < len(table) else None,
        }


def _plain(value: Any) -> Any:
    """Turn a cell into plain JSON: few digits, short texts, null where there is nothing."""
    if is_null(value):
        return None
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, str):
        return value if len(value) <= LONGEST_CELL else f"{value[:LONGEST_CELL]}…"
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value.item() if hasattr(value, "item") else value


class Tool(NamedTuple):
    """A verb as a tool: its words, what its answers are worth, how it is asked, its arguments."""

    verb: Verb
    words: str
    grade: str
    work: Callable[["Service", Model, Given, Budget], Found]
    parameters: tuple[Parameter, ...]


def write_schema(parameters: Sequence[Parameter]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {each.front: _describe(each) for each in parameters},
        "required": [each.front for each in parameters if each.default is REQUIRED],
        "additionalProperties": False,
    }


@cache
def _describe(parameter: Parameter) -> dict[str, Any]:
    option = parameter.option
    assert option is not None
    schema: dict[str, Any] = TypeAdapter(_find_type(parameter)).json_schema()
    for kind in schema.get("anyOf", [schema]):
        most = option.longest or LONGEST_TEXT
        bounds: dict[str, dict[str, Any]] = {
            "string": {"enum": list(option.choices)} if option.choices else {"maxLength": most},
            "array": {"maxItems": most},
            "object": {"maxProperties": most},
            "number": {"minimum": option.least, "maximum": option.most},
        }
        bounds["integer"] = bounds["number"]
        told = {} if {"const", "enum"} & set(kind) else bounds.get(kind["type"], {})
        kind.update({name: bound for name, bound in told.items() if bound is not None})
    if parameter is SECONDS:
        schema["exclusiveMinimum"] = schema.pop("minimum")
    elif parameter is FACTS:
        schema["anyOf"][1]["items"] = write_schema(FACT)
    words = option.words
    if option.default:
        words = f"{words.rstrip('.')}; by default {option.default}."
    default = {} if parameter.default is REQUIRED else {"default": parameter.default}
    return {**schema, "description": words, **default}


def read_arguments(of: str, given: Mapping[str, Any], parameters: Sequence[Parameter]) -> Given:
    """Return every argument, given or by default, or refuse one that is unknown, missing or wrong."""
    taken = {each.front: each for each in parameters}
    for name in given:
        if name not in taken:
            near = difflib.get_close_matches(name, taken, 1) or [", ".join(taken)]
            raise OptionRefused(f'{of} has no argument "{name}".', remedy=near[0])
    for name, each in taken.items():
        if name in given:
            _check(of, each, given[name])
        elif each.default is REQUIRED:
            raise OptionRefused(f"{of} needs {name}.", remedy=f"it takes {', '.join(taken)}")
    return {name: each.default for name, each in taken.items()} | dict(given)


def _check(of: str, parameter: Parameter, value: Any) -> None:
    name, option, schema = parameter.front, parameter.option, _describe(parameter)
    assert option is not None
    kinds = {kind["type"] for kind in schema.get("anyOf", [schema])}
    if isinstance(value, str) and "array" in kinds and "string" not in kinds:
        # In Python one name may stand for a list of one.
        raise OptionRefused(f"{name} = {show(value)}: {of} takes a list.", remedy=f'["{value}"]')
    check(of, name, value, _find_type(parameter))
    check_option(name, value, option)
    if parameter is SECONDS and not value > 0:
        raise OptionRefused(f"seconds = {show(value)}: it must be more than 0.")
    for each in (value, *(value if isinstance(value, list | dict) else ())):
        most = option.longest if each is value and option.longest else LONGEST_TEXT
        if isinstance(each, str | list | dict) and len(each) > most:
            unit = "characters" if isinstance(each, str) else "items"
            raise OptionRefused(f"{name} = {show(each)}: it has more than {most:,} {unit}.")


def _find_type(parameter: Parameter) -> Any:
    """Return an argument's type: nothing can be given where nothing is the default."""
    return parameter.typed | None if parameter.default is None else parameter.typed


def ask_verb(verb: Verb, service: "Service", model: Model, given: Given, budget: Budget) -> Found:
    answered = answer(
        verb, model, given, scan=service.find_scan(model) if verb.takes_scan else None,
        progress=budget.count, find_model=service.models.get, find_facts=service.find_facts,
    )  # fmt: skip
    return Found(answered.result, answered.tables, answered.notes, answered.provenance)


def ask_score(service: "Service", model: Model, given: Given, budget: Budget) -> Found:
    """Score facts; then a summary of relations, what their facts share, or what they lose."""
    by_relation, overlap, remove, hubs, seed = (given.pop(each.name) for each in SUMMARIES)
    if sum((by_relation, overlap, remove is not None)) > 1:
        raise OptionRefused("one of by_relation, overlap and remove.")
    if not (facts := given.pop("facts")):
        raise OptionRefused("facts = []: there is no fact to score.")
    rows = service.find_facts(facts) if isinstance(facts, str) else [
        FactRow(**read_arguments(f"facts.{n}", each, FACT)) for n, each in enumerate(facts)
    ]  # fmt: skip
    scores = VERBS["score"].function(model, rows, progress=budget.count, **given)
    left_out = len(scores.problems)
    notes = [f"{left_out:,} rows were left out; the table problems says why"] if left_out else []
    notes += scores.notes
    if not len(scores):
        return Found(scores, {"problems": scores.problems}, notes)
    result = scores
    if by_relation:
        result = scores.by_relation(hubs=hubs, seed=seed)
    elif overlap:
        result = scores.overlap(hubs=hubs, seed=seed)
    elif remove is not None:
        result = scores.specificity(remove, given["top"], seed=seed)
    return Found(result, result.tables(), notes)


def ask_label(service: "Service", model: Model, given: Given, budget: Budget) -> Found:
    """Read the labels that are kept with a scan; with other settings label the neurons named."""
    served, neurons = service.find_scan(model), given["neurons"]
    labels: Labels | None = find_labels(model, served)
    settings = {} if labels is None else labels.provenance.settings
    if labels is None or any(settings[name] != given[name] for name in ("share", "least")):
        scan = embedded_scan(model) if served is None else served
        if scan is None:
            why = f"no scan of {model.name} is served, so there are no labels."
            raise DataRefused(why, remedy="ffnprobe serve --mcp --store DIR")
        if neurons is None:
            why = "no labels of all neurons are kept with these settings."
            raise DataRefused(why, remedy="name neurons, or first ffnprobe label --store DIR")
        labels = VERBS["label"].function(model, scan, progress=budget.count, **given)
    elif neurons is not None:
        labels = labels.pick([str(name) for name in model.find_neurons(neurons)])
    tables = labels.tables()
    first = "layers" if neurons is None else "neurons"
    return Found(labels, {first: tables.pop(first), **tables}, [labels.summary])


def _take_parameters(verb: Verb, *instead: Parameter) -> tuple[Parameter, ...]:
    """List what agents are offered: options that name no files, those instead, the common ones."""
    own = {each.front: each for each in (*verb.options, *instead)}  # where the verb has it
    for name, each in own.items():
        if each.option is not None and each not in instead:
            for_agents = FOR_AGENTS.get(each.role, FOR_AGENTS.get(name, {}))
            own[name] = replace(each, option=replace(each.option, name=name, **for_agents))
    offered = (p for p in own.values() if p.option is not None and not p.option.is_local)
    return (*offered, MODEL, SECONDS, ROWS)


def make_tool(verb: Verb) -> Tool:
    return Tool(verb, verb.words, verb.grade, partial(ask_verb, verb), _take_parameters(verb))


TOOLS: dict[str, Tool] = {name: make_tool(verb) for name, verb in VERBS.items() if verb.grade} | {
    "label": Tool(
        VERBS["label"],
        "Say what opens neurons and what they say, by labels that were scored on held-out texts.",
        "corpus: a rule scored on texts it was not found on, next to a look-up and to shuffled activations",
        ask_label, _take_parameters(VERBS["label"]),
    ),
    "score": Tool(
        VERBS["score"],
        "Score facts: rank, probability, whether each is known, and the neurons that push it.",
        "recall is a measurement; neurons are by push only, unless effects were asked for",
        ask_score, _take_parameters(VERBS["score"], FACTS, *SUMMARIES),
    ),
}  # fmt: skip
for _tool in TOOLS.values():  # so that the first question does not wait for it
    import_module(_tool.verb.home)

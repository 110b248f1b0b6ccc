"""Ask a verb as a front does: by a prompt's text, a model and options that were typed.

What a front has already (the model, a scan, a progress bar) is handed in; traces are run, contrast prompts
are taken out of tables of facts, and what a reader should know of the answer's spelling is noted.

>>> import ffnprobe as fp
>>> from ffnprobe.verbs import VERBS
>>> found = answer(VERBS["run"], fp.load("pocket"), {"prompt": "Tiger Woods plays the sport of", "top": 1})
>>> found.tables["predictions"].token.tolist()
['␣golf']
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ffnprobe.arguments import Progress, check_option
from ffnprobe.errors import OptionRefused
from ffnprobe.models.model import Model
from ffnprobe.provenance import Provenance
from ffnprobe.results import Result
from ffnprobe.verbs import REQUIRED, Verb

if TYPE_CHECKING:
    import pandas as pd

    from ffnprobe.corpora.scans import Scan

# Of more neurons the examples of the embedded scan are not listed.
EXAMPLES_OF = 5


@dataclass(frozen=True, eq=False)
class Answered:
    """What a verb found, how much of it is to be shown, and what is said beside it."""

    verb: Verb
    model: Model
    result: Result
    shown: Mapping[str, Any]
    spelling: tuple[str, ...] = ()
    scan: "Scan | None" = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What is said beside the tables: of the answer's spelling, and of the result."""
        return (*self.spelling, *self.result.notes)

    @cached_property
    def tables(self) -> "dict[str, pd.DataFrame]":
        """The tables: neurons that were read or searched for with their labels, the former with examples."""
        from ffnprobe.reading.readings import Reading, Readings
        from ffnprobe.reading.searches import Search

        tables: dict[str, pd.DataFrame] = self.result.tables(**self.shown)
        if not isinstance(self.result, Reading | Readings | Search):
            return tables
        from ffnprobe.corpora.examples import table_examples
        from ffnprobe.corpora.scans import embedded_scan
        from ffnprobe.labels.stored_labels import find_labels, join_labels

        first, scan = next(iter(tables)), self.scan
        joined = join_labels(tables[first], find_labels(self.model, scan))
        tables = {**tables, first: self.result.provenance.note(joined)}
        names = list(joined.name)
        if isinstance(self.result, Search):
            return tables
        if scan is None and len(names) <= EXAMPLES_OF:
            scan = embedded_scan(self.model)
        if scan is not None:
            top = int(self.shown.get("top") or 10)
            tables["examples"] = table_examples(scan, names, top=top)
        return tables

    @property
    def provenance(self) -> Provenance:
        """Where the numbers come from; what was chosen of the view is in it."""
        own = {p.name: p.default for p in self.verb.parameters if p.is_shown and p.name != "top"}
        if all(self.shown[name] == default for name, default in own.items()):
            return self.result.provenance
        return Provenance.from_dict(next(iter(self.tables.values())).attrs["provenance"])

    @property
    def printed(self) -> "dict[str, pd.DataFrame]":
        result, tables = self.result, self.tables
        names = [name for name in result.in_terminal or tables if name in tables]
        most = result.most and (self.shown.get("top") or result.most)
        return {name: tables[name].head(most) if most else tables[name] for name in names}


def answer(
    verb: Verb,
    model: Model,
    options: Mapping[str, Any],
    *,
    scan: "Scan | None" = None,
    progress: Progress | None = None,
    find_model: Callable[[str], Model] | None = None,
    find_facts: Callable[[str], Any] = str,
) -> Answered:
    """Ask a verb; `options` are options by the names that fronts have for them."""
    values = {each.front: each.default for each in verb.options} | dict(options)
    for each in verb.options:
        assert each.option is not None
        if each.default is REQUIRED and values[each.front] is REQUIRED:
            raise OptionRefused(f"{verb.name} needs {each.front}.")
        check_option(each.front, values[each.front], each.option)
    notes, is_predicted = _note_answer(model, values), values.get("answer", "") is None
    _find_contrast(model, values, find_facts)
    if (kind := values.pop("kind", None)) is not None:
        from ffnprobe.labels.surveying import survey

        surveyed = survey(model, layers=values["layers"], top=1, progress=progress)
        values["among"] = surveyed.of_kind(kind)
    shown = {p.name: values.pop(p.front) for p in verb.parameters if p.is_shown and p.option}
    prompts = {p.name: values[p.front] for p in verb.parameters if p.role == "Trace"}
    asked: dict[str, Any] = {}
    if prompts:
        from ffnprobe.tracing.runs import run

        traces: Any = run(model, list(prompts.values()), bos=values["bos"])
        asked = dict(zip(prompts, traces, strict=True))
    for each in verb.parameters:
        if each.option is not None and each.role == "Model":
            assert find_model is not None
            asked[each.name] = find_model(values.pop(each.front))
        elif each.role == "Sequence[Scan]":
            asked[each.name] = _open_scans(values.pop(each.front))
        elif each.option is not None and each.role != "Trace" and not each.is_shown:
            asked[each.name] = values.pop(each.front, values.get(each.name))
        elif each.role in ("Model", "Scan", "Progress"):
            asked[each.name] = {"Model": model, "Scan": scan, "Progress": progress}[each.role]
    if scan is not None and verb.find_role("Scan") is None and "replace" in asked:
        asked["replace"] = _take_means(scan, asked)
    result = verb.function(**asked)
    if is_predicted:
        notes.append(f"no answer given: taking the prediction, {result.provenance.answer}")
    return Answered(verb, model, result, shown, tuple(notes), scan)


def _note_answer(model: Model, values: Mapping[str, Any]) -> list[str]:
    """Say how an answer is split into tokens, and what a space at the end of the prompt does to it."""
    prompt, wanted = values.get("prompt"), values.get("answer")
    if not isinstance(wanted, str) or not isinstance(prompt, str):
        return []
    from ffnprobe.tracing.trace import describe_spelling

    notes, bare = describe_spelling(model.vocab, wanted), prompt.rstrip(" ")
    if bare == prompt or not bare:
        return notes
    from ffnprobe.tracing.runs import run

    # Tokens carry the space before a word: a space at the end is a token of its own that few texts hold.
    ranks = []
    for text, word in ((prompt, wanted), (bare, " " + wanted.lstrip(" "))):
        logits = run(model, text, bos=values.get("bos"), patterns=False).logits[-1]
        token = model.vocab.pieces(word)[0]
        rank = 1 + int((logits > logits[token]).sum())
        ranks.append(f'"{model.vocab.show_all([token])[0]}" has rank {rank:,}')
    return [*notes, f"the prompt ends in a space: {ranks[0]}; without the space, {ranks[1]}"]


def _find_contrast(model: Model, values: dict[str, Any], find_facts: Callable[[str], Any]) -> None:
    """Add the contrast prompts that a table of facts has; it is asked about the prediction without an answer."""
    facts = values.pop("contrast_from", None)
    if facts is None:
        return
    from ffnprobe.facts.subjects import find_contrast_rows

    wanted = values["answer"]
    if wanted is None:
        from ffnprobe.tracing.runs import run
        from ffnprobe.tracing.trace import predicted

        trace = run(model, values["prompt"], bos=values["bos"], patterns=False)
        wanted = model.vocab.text([predicted(trace)])
    rows = find_contrast_rows(find_facts(facts), values["prompt"], wanted, model=model.name)
    named = values["contrast"] or []
    values["contrast"] = [*([named] if isinstance(named, str) else named), *rows] or None


def _open_scans(folders: Sequence[Any] | None) -> "list[Scan] | None":
    from ffnprobe.corpora.scans import Scan

    if folders is not None and len(folders) != 2:
        why = "activations are compared between two scans, one of each model."
        raise OptionRefused(why, remedy="two stores: of the model and of the other")
    return None if folders is None else [Scan.open(folder) for folder in folders]


def _take_means(scan: "Scan", asked: Mapping[str, Any]) -> Any:
    """Take a scan's means as what ablated activations are replaced by."""
    if asked.get("contrast") is not None:
        raise OptionRefused(
            "a store gives means over its corpus; with contrast prompts, means over them are used.",
            remedy="leave out the store, or the contrast prompts",
        )
    if asked["replace"] == "zero":
        why = "a store gives means, which replace zero does not use."
        raise OptionRefused(why, remedy="replace mean")
    return scan.means

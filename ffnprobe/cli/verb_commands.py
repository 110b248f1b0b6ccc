"""The commands that follow from verbs: options by the signature, the model loaded, the result printed.

How a result ends in a terminal is written here where it is not by its tables: `ENDINGS`. `batch VERB FILE`
asks a verb about many prompts, with the verb's options.
"""

import inspect
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ffnprobe.arguments import HOOKS, STORE, Argument, Option
from ffnprobe.cli.command import HelpGroup, Work, build, take
from ffnprobe.cli.invocation import Common, open_store, read_prompt, say_kept, show_progress
from ffnprobe.verbs import VERBS, Verb

if TYPE_CHECKING:
    from ffnprobe.asking import Answered

MORE = "more: --full (all columns, map, paths, parts, curve), --html FILE (a page)"
BATCH = """Run a verb on many prompts, and list all rows in one table.

Without an answer, the model's prediction is taken. A prompt that is refused does not stop the others."""
BATCH_FILE = Argument(
    "A .txt with one prompt per line, or a .csv or .jsonl with prompt and answer.", Path, metavar="FILE"
)  # fmt: skip
BATCH_STORE = Option(
    "Keep finished prompts in this folder; the same command resumes.", Path | None, metavar="DIR"
)


def read_graph(text: str) -> Path:
    """Check the name of a graph's file before any work is done."""
    from ffnprobe.views.graph_files import SUFFIXES
    from ffnprobe.views.saving import check_target

    path = Path(text)
    check_target(path, SUFFIXES)
    return path


GRAPH = Option(
    "Also write the graph: .graphml, or .json for circuit-tracer.", metavar="FILE", read=read_graph
)
Graph = Annotated[Path | None, GRAPH]


def end(common: Common, answered: "Answered") -> None:
    """Print the tables, or write them, and say what is beside them."""
    for note in answered.result.notes:
        common.note(note)
    common.emit(
        answered.result, answered.tables, provenance=answered.provenance, printed=answered.printed
    )


def end_explain(
    common: Common,
    answered: "Answered",
    full: Annotated[bool, Option("Also print the map, paths, parts, curve, every column.")] = False,
) -> None:
    """Print the verdict first, and ten rows; the rest if asked for."""
    if not common.is_for_terminal:
        end(common, answered)
        return
    from ffnprobe.documents.blocks import Words
    from ffnprobe.views.terminal import print_document

    explanation: Any = answered.result
    more = [] if full else [Words(MORE, "soft")]
    print_document("", [*explanation.document(), *more], is_full=full)
    if len(explanation.pushes.pieces) > 1 and not full:
        common.note("numbers are added up over the answer's tokens; --full prints each one's")
    common.write(explanation)


def end_circuit(common: Common, answered: "Answered", graph: Graph = None) -> None:
    if graph is not None:
        from ffnprobe.views.graph_files import save_graph

        circuit: Any = answered.result
        save_graph(circuit, graph)
        common.note(f"wrote {graph}")
    end(common, answered)


def end_read(common: Common, answered: "Answered") -> None:
    """Print one neuron as a card: text, which needs no pandas, whose import takes longer than reading it."""
    readings: Any = answered.result
    if len(readings) > 1 or not common.is_for_terminal:
        end(common, answered)
        return
    from ffnprobe.corpora.examples import examples
    from ffnprobe.corpora.scans import embedded_scan
    from ffnprobe.labels.stored_labels import find_labels
    from ffnprobe.layout import find_width, wrap

    reading, top = readings[0], answered.shown["top"] or 10
    common.write(reading)
    print(reading.card(top))
    labels = find_labels(answered.model, answered.scan)
    label = None if labels is None else labels.of(reading.name)
    if label is not None:
        print("\n" + "\n".join(wrap(f"label: {label.describe()}", find_width())))
    if answered.model.lens is not None:
        from ffnprobe.interventions.list_checks import check_lists

        checked = check_lists(answered.model, reading.name, top=top)
        print("\n" + "\n".join(wrap(f"lists: {checked.describe()}", find_width())))
    scan = embedded_scan(answered.model) if answered.scan is None else answered.scan
    if scan is not None:
        from ffnprobe.views.terminal import print_document

        shown_examples = examples(scan, reading.name)
        print()
        print_document(shown_examples.title, shown_examples.quote(top))


ENDINGS: dict[str, Work] = {"explain": end_explain, "circuit": end_circuit, "read": end_read}


def list_options(verb: Verb) -> list[inspect.Parameter]:
    """List the options that a verb's signature declares, and who runs its prompts."""
    asked = ((p, p.option) for p in verb.options if p.option is not None)
    options = [take(p.front, replace(option, typed=p.typed), p.default) for p, option in asked]
    if verb.runs_traces or verb.takes_prompt:
        options.append(take("hooks", HOOKS, False))
    return options


def make_verb(verb: Verb) -> Any:
    ending = ENDINGS.get(verb.name, end)
    own = list(inspect.signature(ending).parameters.values())[2:]
    # A scan also has means to replace activations by.
    takes_store = verb.takes_scan or any(each.name == "replace" for each in verb.parameters)

    def ask(common: Common, **given: Any) -> None:
        if "prompt" in given:
            given["prompt"] = read_prompt(given["prompt"])
        rest = {each.name: given.pop(each.name) for each in own}
        store = given.pop("store") if takes_store else None
        model = common.load(hooks=given.pop("hooks", None), has_own_threads="engine" in given)
        from ffnprobe.asking import answer

        scan = open_store(model, store)
        with show_progress(common, verb.name) as progress:
            answered = answer(
                verb, model, given, scan=scan, progress=progress, find_model=common.load_named
            )
        for note in answered.spelling:
            common.note(note)
        ending(common, answered, **rest)

    stores = [take("store", STORE, None)] if takes_store else []
    return build(verb.name, verb.words, ask, [*list_options(verb), *stores, *own])


def by_hand(function: Work) -> Work:
    """Register the command of a verb whose work is written by hand; its options are still the verb's.

    A parameter of the function's own is one more option, or stands in for the verb's.
    """
    verb = VERBS[function.__name__]

    def make() -> Any:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:-1]
        names = [each.name for each in own]
        declared = [p for p in list_options(verb) if p.name not in names]
        words = inspect.cleandoc(function.__doc__ or verb.words)
        return build(verb.name, words, function, [*declared, *own])

    HelpGroup.derived[verb.name] = make
    return function


def make_batch(verb: Verb) -> Any:
    """Make the command that asks a verb about each prompt of a file."""
    options = [p for p in list_options(verb) if p.name not in ("prompt", "answer")]
    defaults = {each.front: each.default for each in verb.options}

    def ask(common: Common, *, file: Path, store: Path | None, **given: Any) -> None:
        common.check_out()
        from ffnprobe.batches import batch, read_prompts

        table: Any = read_prompts(file)
        model = common.load(hooks=given.pop("hooks"))
        given = {name: value for name, value in given.items() if value != defaults[name]}
        with say_kept("finished prompts are", store), show_progress(common, "prompts") as progress:
            answers = batch(model, table, verb=verb.name, store=store, progress=progress, **given)
        for row in answers.problems.itertuples():
            common.note(f"{row.prompt!r} was refused: {row.problem}")
        common.emit(answers, printed={"rows": answers.table})

    own = [take("file", BATCH_FILE), *options, take("store", BATCH_STORE, None)]
    return build(verb.name, verb.words, ask, own)


class BatchGroup(HelpGroup):
    """The verbs that ask about one prompt, as commands that ask about many."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["VERB", "FILE", "[OPTIONS]"]


def make_batch_group() -> BatchGroup:
    asked = [verb for verb in VERBS.values() if verb.takes_prompt]
    BatchGroup.derived = {v.name.replace("_", "-"): partial(make_batch, v) for v in asked}
    return BatchGroup(name="batch", help=BATCH, rich_markup_mode=None, no_args_is_help=True)


HelpGroup.derived |= {v.name.replace("_", "-"): partial(make_verb, v) for v in VERBS.values()}
HelpGroup.derived["batch"] = make_batch_group

"""The commands that follow from verbs: options by the signature, the model loaded, the result printed.

How a result ends in a terminal is written here where it is not by its tables: `ENDINGS`.
"""

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ffnprobe.arguments import HOOKS, STORE, Option
from ffnprobe.cli.command import Common, HelpCommand, HelpGroup, make_command, take
from ffnprobe.cli.invocation import open_store, read_prompt, show_progress
from ffnprobe.verbs import VERBS, Verb

if TYPE_CHECKING:
    from ffnprobe.asking import Answered


MORE = "more: --full (all columns, map, paths, parts, curve), --html FILE (a page)"


def read_graph(text: str) -> Path:
    """Check the name of a graph's file before any work is done."""
    from ffnprobe.views.graph_files import SUFFIXES
    from ffnprobe.views.table_formats import check_target

    path = Path(text)
    check_target(path, SUFFIXES)
    return path


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

    found: Any = answered.result
    more = [] if full else [Words(MORE, "soft")]
    print_document("", [*found.document(), *more], is_full=full)
    if len(found.pushes.pieces) > 1 and not full:
        common.note("numbers are added up over the answer's tokens; --full prints each one's")
    common.write(found)


def end_circuit(
    common: Common,
    answered: "Answered",
    graph: Annotated[
        Path | None,
        Option(
            "Also write the graph: .graphml, or .json for circuit-tracer.",
            metavar="FILE", read=read_graph,
        ),
    ] = None,
) -> None:  # fmt: skip
    """Write the graph, too."""
    if graph is not None:
        from ffnprobe.views.graph_files import save_graph

        found: Any = answered.result
        save_graph(found, graph)
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
    known = None if labels is None else labels.of(reading.name)
    if known is not None:
        print("\n" + "\n".join(wrap(f"label: {known.describe()}", find_width())))
    scan = embedded_scan(answered.model) if answered.scan is None else answered.scan
    if scan is not None:
        from ffnprobe.views.terminal import print_document

        found = examples(scan, reading.name)
        print()
        print_document(found.title, found.quote(top))


ENDINGS: dict[str, Callable[..., None]] = {
    "explain": end_explain,
    "circuit": end_circuit,
    "read": end_read,
}


def list_options(verb: Verb) -> list[inspect.Parameter]:
    """List the options that a verb's signature declares, and who runs its prompts."""
    declared = [(each, each.option) for each in verb.options if each.option is not None]
    found = [
        take(p.front, option.but(option.words, typed=p.typed), p.default) for p, option in declared
    ]
    runs = verb.runs_traces or verb.takes_prompt
    return [*found, *([take("hooks", HOOKS, False)] if runs else [])]


def _takes_store(verb: Verb) -> bool:
    """Whether a scan says more: of examples and labels, or of means to replace activations by."""
    names = [each.name for each in verb.parameters]
    return bool(verb.find_role("Scan")) or "replace" in names or verb.name in ("read", "search")


def make_verb(verb: Verb) -> Any:
    """Make the command of a verb."""
    ending = ENDINGS.get(verb.name, end)
    more = list(inspect.signature(ending).parameters)[2:]

    def ask(common: Common, **given: Any) -> None:
        if "prompt" in given:
            given["prompt"] = read_prompt(given["prompt"])
        rest = {name: given.pop(name) for name in more}
        store = given.pop("store") if _takes_store(verb) else None
        model = common.load(hooks=given.pop("hooks", None), has_own_threads="engine" in given)
        from ffnprobe.asking import answer

        scan = open_store(model, store)
        with show_progress(common, verb.name) as progress:
            answered = answer(
                verb, model, given, scan=scan, progress=progress, find_model=common.load_other
            )
        for note in answered.spelling:
            common.note(note)
        ending(common, answered, **rest)

    own = [take("store", STORE, None)] if _takes_store(verb) else []
    own += list(inspect.signature(ending).parameters.values())[2:]
    return build(verb.name, verb.words, ask, [*list_options(verb), *own])


def by_hand(function: Callable[..., None]) -> Callable[..., None]:
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


def build(
    name: str, words: str, function: Callable[..., None], parameters: list[inspect.Parameter]
) -> Any:
    """Build a command of a function that takes these parameters."""
    alone = typer.Typer(
        rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )  # fmt: skip
    alone.command(name.replace("_", "-"), cls=HelpCommand, help=words)(
        make_command(function, parameters)
    )
    return typer.main.get_command(alone)


def list_commands(
    make: Callable[[Verb], Any], verbs: Iterable[Verb]
) -> dict[str, Callable[[], Any]]:
    """Name commands, each made of a verb when it is asked for."""
    return {verb.name.replace("_", "-"): partial(make, verb) for verb in verbs}


HelpGroup.derived |= list_commands(make_verb, VERBS.values())

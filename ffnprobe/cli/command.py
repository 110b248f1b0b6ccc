"""What every command shares: its common options, notes to stderr, results to stdout or a file."""

import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from ffnprobe.arguments import PROMPT, Argument, Option, check_option
from ffnprobe.cli.failures import begin_work, end_work, flush_output, restate
from ffnprobe.errors import FfnProbeError, OptionRefused
from ffnprobe.verbs import REQUIRED
from ffnprobe.version import VERSION

if TYPE_CHECKING:
    import pandas as pd

    from ffnprobe.models.model import Model
    from ffnprobe.provenance import Provenance
    from ffnprobe.results import Result


# MERGED: ffnprobe.cli.help
# How help is written: plain lines that fit a narrow terminal, flags as `--bos / --no-bos`, nothing cut.


# Longer than the first line of any command's help.
WHOLE = 1_000


class Commands(dict[str, Any]):
    """Commands by name, each made of a function when it is first asked for."""

    def __getitem__(self, name: str) -> Any:
        found = super().__getitem__(name)
        if not hasattr(found, "params"):
            found = self[name] = found()
        return found

    def get(self, name: str, default: Any = None) -> Any:
        """Return a command, or nothing."""
        return self[name] if name in self.keys() else default

    def items(self) -> Any:
        """Make every command."""
        return [(name, self[name]) for name in self]


class HelpGroup(TyperGroup):
    """The list of commands, each with the whole first line of its help; those of verbs are made late."""

    derived: ClassVar[dict[str, Callable[[], Any]]] = {}

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        every = {**self.commands, **self.derived}
        self.commands = Commands({name: every[name] for name in sorted(every)})

    def list_commands(self, ctx: Any) -> list[str]:
        """Name the commands, none of them made for it."""
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a row for each command; a long line is wrapped, not cut."""
        rows = [(name, self._words(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def _words(self, ctx: Any, name: str) -> str:
        """Say what a command does; one that is not made yet has it from its verb."""
        verb = next(iter(getattr(self.derived.get(name), "args", ())), None)
        if verb is not None:
            return str(verb.words)
        return str(self.get_command(ctx, name).get_short_help_str(WHOLE))  # type: ignore[union-attr]


class HelpCommand(TyperCommand):
    """A command's arguments, its own options, and below them those of every command."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Name the arguments as the commands' page does."""
        named = [_name_argument(p) for p in self.params if p.param_type_name == "argument"]
        return [*named, "[OPTIONS]"]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write three lists."""

        shared = {*Common.__dataclass_fields__, "help"}
        lists: dict[str, list[tuple[str, str]]] = {
            "Arguments": [], "Options": [], "Options of every command": [],
        }  # fmt: skip
        for each in self.get_params(ctx):
            if (record := each.get_help_record(ctx)) is None:
                continue
            name, words = record[0], re.sub(r"\[default: \((.*)\)\]$", r"[default: \1]", record[1])
            if each.param_type_name == "argument":
                lists["Arguments"].append((_name_argument(each), words))
            else:
                kind = "Options of every command" if each.name in shared else "Options"
                lists[kind].append((name, words))
        for title, rows in lists.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _name_argument(argument: Any) -> str:
    name = str(argument.metavar)
    return name if argument.required else f"[{name}]"


# What an option takes, in the words of the commands' page.
KINDS = {
    "<class 'str'>": "TEXT",
    "<class 'int'>": "N",
    "<class 'float'>": "NUMBER",
    "list[str]": "TEXT",
}


app = typer.Typer(
    name="ffnprobe",
    cls=HelpGroup,
    rich_markup_mode=None,
    help="Read the MLP layers of a language model neuron by neuron: questions, answers, pushes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"ffnprobe {VERSION}")
        raise typer.Exit


@app.callback()
def describe(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Read the MLP layers of a language model neuron by neuron: questions, answers, pushes."""


@dataclass(frozen=True)
class Common:
    """The options every command has."""

    model: Annotated[
        str | None,
        Option(
            "pocket, gpt2, gpt2-medium, …, smollm2, gemma3-270m, owner/name on the hub, a folder or a .gguf file.",
            flag="-m", metavar="NAME|FOLDER|FILE", default="$FFNPROBE_MODEL, else pocket",
        ),
    ] = None  # fmt: skip
    device: Annotated[
        str, Option("The device to compute on.", choices=("auto", "cpu", "cuda", "mps"))
    ] = "auto"
    threads: Annotated[
        int | None,
        Option(
            "How many threads to compute with.",
            default="$FFNPROBE_THREADS, else as many as help a model of this size",
        ),
    ] = None
    format: Annotated[
        str, Option("The format of the printed result.", choices=("table", "csv", "json", "md"))
    ] = "table"
    out: Annotated[
        Path | None,
        Option(
            "Write the result to a .csv, .json, .jsonl, .parquet, .md or .html file.",
            flag="-o", metavar="FILE",
        ),
    ] = None  # fmt: skip
    html: Annotated[Path | None, Option("Also write a self-contained page.", metavar="FILE")] = None
    plot: Annotated[
        Path | None, Option("Also write its figure to a .html or .png file.", metavar="FILE")
    ] = None
    quiet: Annotated[bool, Option("Print no notes and no progress bar.", flag="-q")] = False
    debug: Annotated[bool, Option("Show the traceback of an error.")] = False

    @property
    def model_name(self) -> str:
        from ffnprobe.models.loading import default_name

        return self.model or default_name()

    def load(self, *, hooks: bool | None = None, has_own_threads: bool = False) -> "Model":
        """Check the output files, load the model, and note its name, source and fingerprint.

        `hooks` is the option of commands that run prompts; the note then says who runs them. Threads
        are set to what pays for the model, unless the command chooses its own.
        """
        self.check_out()
        from ffnprobe.cli.invocation import read_threads, use_threads

        asked = read_threads(self.threads)
        from ffnprobe.models.loading import load

        model = load(self.model_name, device=self.device, hooks=bool(hooks))
        if asked is not None or not has_own_threads:
            use_threads(asked, model.config.parameters())
        known = f"{model.name} ({model.source}, weights {model.fingerprint[:8]}"
        self.note(f"{known})" if hooks is None else f"{known}, run by {model.run_by})")
        return model

    def load_other(self, name: str) -> "Model":
        """Load a second model, and note which it is."""
        from ffnprobe.models.loading import load

        model = load(name, device=self.device)
        self.note(f"{model.name} ({model.source}, weights {model.fingerprint[:8]})")
        return model

    def check_out(self) -> None:
        """Refuse files that cannot be written before any work is done."""
        if self.out is not None or self.html is not None:
            from ffnprobe.views.table_formats import check_target

            if self.out is not None:
                check_target(self.out)
            if self.html is not None:
                check_target(self.html, (".html",))
        if self.plot is not None:
            from ffnprobe.views.saving import check_picture

            check_picture(self.plot)

    def check_apart(self, read: Mapping[str, object]) -> None:
        """Refuse to write two results to one file, or one over what is read."""
        from ffnprobe.cli.invocation import check_apart

        check_apart({"--out": self.out, "--html": self.html, "--plot": self.plot}, read)

    def note(self, text: str) -> None:
        """Print a note to stderr; it is not part of the result."""
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    @property
    def is_for_terminal(self) -> bool:
        """Whether the result is printed as text for people."""
        return self.out is None and self.format == "table"

    def emit(
        self,
        result: "Result",
        tables: "dict[str, pd.DataFrame] | None" = None,
        *,
        provenance: "Provenance | None" = None,
        printed: "dict[str, pd.DataFrame] | None" = None,
    ) -> None:
        """Print tables in the chosen format, or write `--out`; as text, only what is to be `printed`."""
        from ffnprobe.views.saving import gather_tables, save_result
        from ffnprobe.views.table_formats import TEXTS, name_unwritten

        tables = result.tables() if tables is None else tables
        known = result.provenance if provenance is None else provenance
        self.write(result, tables)
        if not self.is_for_terminal and result.caption:  # a table has it underneath
            self.note(result.caption)
        if self.out is not None:
            save_result(result, self.out, tables=tables, provenance=known)
            self.note(f"wrote {self.out}{name_unwritten(tables, self.out)}")
        elif self.format == "table":
            from ffnprobe.documents.blocks import ROWS
            from ffnprobe.views.terminal import print_document

            shown = tables if printed is None else printed
            print_document(result.headline, result.document(shown), most=ROWS)
        else:
            if "utf" not in (sys.stdout.encoding or "utf-8").lower():
                self.note(
                    f"standard output is {sys.stdout.encoding}: what it lacks is written as ?"
                )
            written = gather_tables(result, tables, known, is_told=self.format == "md")
            sys.stdout.write(TEXTS[self.format](written))

    def refuse_output(self, words: str, remedy: str) -> None:
        """Refuse the options of a result in a command that has none."""
        if self.out or self.html or self.plot or self.format != "table":
            raise OptionRefused(words, remedy=remedy)

    def write(self, result: "Result", tables: "dict[str, pd.DataFrame] | None" = None) -> None:
        """Write the page of `--html` and the figure of `--plot`, if asked for."""
        if self.html is not None:
            from ffnprobe.views.saving import save_result

            save_result(result, self.html, tables=tables)
            self.note(f"wrote {self.html}")
        if self.plot is not None:
            from ffnprobe.views.figures import plot
            from ffnprobe.views.saving import save_figure

            save_figure(plot(result), self.plot)
            self.note(f"wrote {self.plot}")


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Register a command; its first parameter, `common`, has the options of every command."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    app.command(function.__name__, cls=HelpCommand)(make_command(function, own))
    return function


def make_command(
    function: Callable[..., None], own: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    """Make what typer takes of a function and its parameters: options by their words, errors as one line."""
    shared = list(inspect.signature(Common, eval_str=True).parameters.values())

    @wraps(function)
    def run_command(**values: Any) -> None:
        common = Common(**{p.name: values.pop(p.name) for p in shared})
        try:
            begin_work()
            common.check_apart({"model": common.model, **values})
            given = {p.name: read_typed(p, values[p.name]) for p in own}
            for p in own:
                check_option(p.name, given[p.name], split_option(p.annotation)[0])
            function(common, **given)
            if error := flush_output():
                raise error
        except Exception as error:
            stated = error if isinstance(error, FfnProbeError) else restate(error)
            if common.debug or stated is None:
                raise
            print(f"error: {stated}", file=sys.stderr)
            raise typer.Exit(1) from None
        except KeyboardInterrupt as stopped:
            # Caught here, because typer would end the command silently. Some say what they kept.
            print(f"interrupted: {str(stopped) or 'nothing was written.'}", file=sys.stderr)
            raise typer.Exit(130) from None
        finally:
            end_work()

    parameters = [offer(p) for p in (*own, *shared)]
    run_command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run_command.__annotations__ = {p.name: p.annotation for p in parameters}
    return run_command


def take(name: str, option: Option, default: Any = REQUIRED) -> inspect.Parameter:
    """Write an option as a parameter of a command."""
    kind, placed = option.typed, inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, placed, default=default, annotation=Annotated[kind, option])


def offer(parameter: inspect.Parameter) -> inspect.Parameter:
    """Write an option as typer wants it."""
    option, kind = split_option(parameter.annotation)
    default, is_repeated = parameter.default, get_origin(kind) in (list, dict)
    if option.choices:
        kind = Literal[option.choices]
    elif option.read is not None:
        kind = list[str] if is_repeated else str
        default = default if default in (None, parameter.empty) else str(default)
    words = option.words
    if is_repeated and not isinstance(option, Argument):
        words = f"{words.removesuffix('.')} (repeatable)."
    elif option.words == PROMPT.words:
        words = f"{words.removesuffix('.')}; - reads it from standard input."
    said: dict[str, Any] = {"help": words, "metavar": option.metavar or KINDS.get(str(kind))}
    if option.default:
        said["show_default"] = option.default
    if parameter.default is None:
        kind = kind | None
    if isinstance(option, Argument):
        info: Any = typer.Argument(**said | {"metavar": option.metavar or parameter.name.upper()})
    else:
        flag = f"--{parameter.name.replace('_', '-')}"
        if kind is bool or kind == bool | None:
            flag = flag if parameter.default is False else f"{flag}/--no-{flag[2:]}"
        names = (
            (option.flag,) if option.flag.startswith("--") else (flag, *filter(None, [option.flag]))
        )
        info = typer.Option(*names, **said)
    return inspect.Parameter(
        parameter.name, inspect.Parameter.KEYWORD_ONLY, default=default,
        annotation=Annotated[kind, info],
    )  # fmt: skip


def split_option(annotation: Any) -> tuple[Option, Any]:
    """Return an annotation's option and the type that is typed, without None."""
    kind, option = get_args(annotation)
    kind = kind if option.typed is None else option.typed
    inner = tuple(each for each in get_args(kind) if each is not NoneType)
    return option, Union[inner] if get_origin(kind) in (Union, UnionType) else kind  # noqa: UP007


def read_typed(parameter: inspect.Parameter, value: Any) -> Any:
    """Read what was typed as the verb takes it."""
    option, kind = split_option(parameter.annotation)
    if value is None or (isinstance(value, list | tuple) and not value):
        return None
    if option.read is None:
        return list(value) if isinstance(value, tuple) else value
    if get_origin(kind) is dict:
        pairs = [option.read(word) for word in value]
        for place, (name, _) in enumerate(pairs):
            if name in [known for known, _ in pairs[:place]]:
                raise OptionRefused(f"{name} is given twice.", remedy="name it once")
        return dict(pairs)
    return [option.read(word) for word in value] if isinstance(value, list | tuple) else option.read(value)  # fmt: skip

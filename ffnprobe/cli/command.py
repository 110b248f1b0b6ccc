"""How a function becomes a command: options of their words, help that fits, errors in one line.

Help is plain lines for a narrow terminal, flags as `--bos / --no-bos`, nothing cut.
"""

import inspect
import re
import sys
from collections import UserDict, defaultdict
from collections.abc import Callable, Sequence
from functools import wraps
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from ffnprobe.arguments import PROMPT, Argument, Option, check_option
from ffnprobe.cli.failures import begin_work, end_work, flush_output, restate, restate_interrupt
from ffnprobe.cli.invocation import Common
from ffnprobe.errors import FfnProbeError, OptionRefused
from ffnprobe.verbs import REQUIRED
from ffnprobe.version import VERSION

Work = Callable[..., None]
NAMED = inspect.Parameter.KEYWORD_ONLY
SHARED = tuple(inspect.signature(Common, eval_str=True).parameters.values())
# What an option takes, in the words of the commands' page.
KINDS: dict[Any, str] = {str: "TEXT", int: "N", float: "NUMBER", list[str]: "TEXT"}
# Longer than the first line of any command's help.
WHOLE = 1_000
SETTINGS: dict[str, Any] = {
    "rich_markup_mode": None, "add_completion": False, "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}  # fmt: skip


class Commands(UserDict[str, Any]):
    """Commands by name, each made of a function when it is first asked for."""

    def __getitem__(self, name: str) -> Any:
        command = super().__getitem__(name)
        if not hasattr(command, "params"):
            command = self[name] = command()
        return command


class HelpGroup(TyperGroup):
    """The list of commands, each with the whole first line of its help; those of verbs are made late."""

    derived: ClassVar[dict[str, Callable[[], Any]]] = {}

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.commands = Commands(sorted({**self.commands, **self.derived}.items()))

    def list_commands(self, ctx: Any) -> list[str]:
        """Name the commands, none of them made for it."""
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a row for each command; a long line is wrapped, not cut."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._words(ctx, name)) for name in self.commands])

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
        shared = {*(each.name for each in SHARED), "help"}
        lists = defaultdict[str, list[tuple[str, str]]](list)
        for each in self.get_params(ctx):
            if (record := each.get_help_record(ctx)) is None:
                continue
            name, words = record[0], re.sub(r"\[default: \((.*)\)\]$", r"[default: \1]", record[1])
            title = "Options of every command" if each.name in shared else "Options"
            if each.param_type_name == "argument":
                title, name = "Arguments", _name_argument(each)
            lists[title].append((name, words))
        for title, rows in sorted(lists.items()):
            with formatter.section(title):
                formatter.write_dl(rows)


def _name_argument(argument: Any) -> str:
    name = str(argument.metavar)
    return name if argument.required else f"[{name}]"


app = typer.Typer(name="ffnprobe", cls=HelpGroup, no_args_is_help=True, **SETTINGS)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"ffnprobe {VERSION}")
        raise typer.Exit


SHOW = typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")


@app.callback()
def describe(version: Annotated[bool, SHOW] = False) -> None:
    """Read the MLP layers of a language model neuron by neuron: questions, answers, pushes."""


def command(function: Work) -> Work:
    """Register a command; its first parameter, `common`, has the options of every command."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    app.command(function.__name__, cls=HelpCommand)(make_command(function, own))
    return function


def build(name: str, words: str, function: Work, own: Sequence[inspect.Parameter]) -> Any:
    alone = typer.Typer(**SETTINGS)
    alone.command(name.replace("_", "-"), cls=HelpCommand, help=words)(make_command(function, own))
    return typer.main.get_command(alone)


def make_command(function: Work, own: Sequence[inspect.Parameter]) -> Work:
    """Make what typer takes of a function and its parameters: options by their words, errors as one line."""

    @wraps(function)
    def run_command(**values: Any) -> None:
        common = Common(**{p.name: values.pop(p.name) for p in SHARED})
        try:
            begin_work()
            common.check_apart({"model": common.model, **values})
            given = {p.name: read_typed(p, values[p.name]) for p in own}
            for p in own:
                check_option(p.name, given[p.name], split_option(p.annotation)[0])
            function(common, **given)
            if error := flush_output():
                raise error
        except (Exception, KeyboardInterrupt) as error:
            # Ctrl-C is caught here, because typer would end the command silently.
            if kept := restate_interrupt(error):
                print(f"interrupted: {kept}", file=sys.stderr)
                raise typer.Exit(130) from None
            stated = error if isinstance(error, FfnProbeError) else restate(error)
            if common.debug or stated is None:
                raise
            print(f"error: {stated}", file=sys.stderr)
            raise typer.Exit(1) from None
        finally:
            end_work()

    parameters = [offer(p) for p in (*own, *SHARED)]
    run_command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run_command.__annotations__ = {p.name: p.annotation for p in parameters}
    return run_command


def take(name: str, option: Option, default: Any = REQUIRED) -> inspect.Parameter:
    return inspect.Parameter(
        name, NAMED, default=default, annotation=Annotated[option.typed, option]
    )


def offer(parameter: inspect.Parameter) -> inspect.Parameter:
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
    shown: dict[str, Any] = {"help": words, "metavar": option.metavar or KINDS.get(kind)}
    if option.default:
        shown["show_default"] = option.default
    if parameter.default is None:
        kind = kind | None
    if isinstance(option, Argument):
        info: Any = typer.Argument(**shown | {"metavar": option.metavar or parameter.name.upper()})
    else:
        flag = f"--{parameter.name.replace('_', '-')}"
        if kind in (bool, bool | None) and parameter.default is not False:
            flag = f"{flag}/--no-{flag[2:]}"
        flags = [option.flag] if option.flag.startswith("--") else filter(None, [flag, option.flag])
        info = typer.Option(*flags, **shown)
    return parameter.replace(kind=NAMED, default=default, annotation=Annotated[kind, info])


def split_option(annotation: Any) -> tuple[Option, Any]:
    """Return an annotation's option and the type that is typed, without None."""
    kind, option = get_args(annotation)
    kind = kind if option.typed is None else option.typed
    inner = tuple(each for each in get_args(kind) if each is not NoneType)
    return option, Union[inner] if get_origin(kind) in (Union, UnionType) else kind  # noqa: UP007


def read_typed(parameter: inspect.Parameter, value: Any) -> Any:
    """Read what was typed as the verb takes it."""
    option, kind = split_option(parameter.annotation)
    if value is None or option.read is None:
        return value
    if not isinstance(value, list):
        return option.read(value)
    words = [option.read(word) for word in value]
    if get_origin(kind) is not dict:
        return words
    for place, (name, _) in enumerate(words):
        if name in [earlier for earlier, _ in words[:place]]:
            raise OptionRefused(f"{name} is given twice.", remedy="name it once")
    return dict(words)

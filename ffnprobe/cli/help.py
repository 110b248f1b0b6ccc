"""How help is written: plain lines that fit a narrow terminal, flags as `--bos / --no-bos`, nothing cut."""

import inspect
import re
import typing
from collections.abc import Iterator
from typing import Any

from typer.core import TyperCommand, TyperGroup
from typer.models import ArgumentInfo, OptionInfo

# What an option takes, in the words of the commands' page.
KINDS = {str: "TEXT", int: "N", float: "NUMBER"}
# Longer than the first line of any command's help.
WHOLE = 1_000


class HelpGroup(TyperGroup):
    """The list of commands, each with the whole first line of its help."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a row for each command; a long line is wrapped, not cut."""
        found = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        rows = [(name, each.get_short_help_str(WHOLE)) for name, each in found.items() if each]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class HelpCommand(TyperCommand):
    """A command's arguments, its own options, and below them those of every command."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Name the arguments as the commands' page does."""
        named = [_name_argument(p) for p in self.params if p.param_type_name == "argument"]
        return [*named, "[OPTIONS]"]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write three lists."""
        from ffnprobe.cli.command import Common

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


def name_values(parameters: list[inspect.Parameter]) -> None:
    """Name what each argument and option takes, where the command has not: PROMPT, TEXT, N."""
    for parameter in parameters:
        kind, *told = typing.get_args(parameter.annotation)
        for info in told:
            if isinstance(info, ArgumentInfo) and info.metavar is None:
                info.metavar = parameter.name.upper()
            elif isinstance(info, OptionInfo) and info.metavar is None:
                info.metavar = next((KINDS[each] for each in _kinds(kind) if each in KINDS), None)


def _kinds(kind: Any) -> Iterator[Any]:
    """List a type and those it is made of: `list[str] | None` is made of `str`."""
    yield kind
    for part in typing.get_args(kind):
        yield from _kinds(part)


def _name_argument(argument: Any) -> str:
    name = str(argument.metavar)
    return name if argument.required else f"[{name}]"

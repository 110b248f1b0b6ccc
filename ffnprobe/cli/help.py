"""How help is written: plain lines that fit a narrow terminal, flags as `--bos / --no-bos`, nothing cut."""

import re
from collections.abc import Callable
from typing import Any, ClassVar

from typer.core import TyperCommand, TyperGroup

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


def _name_argument(argument: Any) -> str:
    name = str(argument.metavar)
    return name if argument.required else f"[{name}]"

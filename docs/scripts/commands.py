"""Write docs/commands.md from the commands' own help.

    python docs/scripts/commands.py

A test fails where the page and the help differ, or where an option has no words.
"""

import re
from pathlib import Path
from typing import Any

import typer

import ffnprobe.cli.main  # noqa: F401  (importing registers every command)
from ffnprobe.cli.command import app
from ffnprobe.cli.invocation import Common

PAGE = Path(__file__).parents[1] / "commands.md"
OPENING = """# Commands

Written from `ffnprobe COMMAND --help` by [scripts/commands.py](scripts/commands.py).

Results go to standard output, notes and progress to standard error; `-` reads a prompt from standard
input. Exit code 0: done; 1: a stated error; 2: wrong usage; 130: interrupted. An error says what, why and
what to do now, in at most three lines, and leaves no partial file.
"""
KINDS = {"<str>": "TEXT", "<int>": "N", "<float>": "NUMBER", "<list[str]>": "TEXT"}


def write_commands() -> str:
    """Write the whole page."""
    group: Any = typer.main.get_command(app)
    context = group.make_context("ffnprobe", ["--help"], resilient_parsing=True)
    first = group.commands["explain"]
    parts = [OPENING, "## Options of every command\n"]
    parts.append(_table("option", [p for p in first.params if is_common(p)], context))
    for name, command in group.commands.items():
        if hasattr(command, "commands"):  # batch, whose options are those of each verb
            asked = command.commands["run"].params
            own = [p for p in asked if p.name in ("file", "store")]
            verbs = ", ".join(f"`{verb}`" for verb in command.commands)
            parts += [f"## {name}\n", f"{command.help.strip()}\n"]
            parts.append(f"```text\nffnprobe {name} VERB FILE [OPTIONS]\n```\n")
            parts.append(f"VERB is one of {verbs}; the other options are the verb's.\n")
            parts += [_table("argument", own[:1], context), _table("option", own[1:], context)]
            continue
        own = [p for p in command.params if not is_common(p)]
        arguments = [p for p in own if p.param_type_name == "argument"]
        options = [p for p in own if p.param_type_name == "option"]
        usage = [f"ffnprobe {name}", *map(_argument, arguments)]
        usage += [_describe(p, context)[0] for p in options if p.required]
        parts += [f"## {name}\n", f"{command.help.strip()}\n"]
        parts.append(f"```text\n{' '.join([*usage, '[OPTIONS]'])}\n```\n")
        for kind, listed in (("argument", arguments), ("option", options)):
            if listed:
                parts.append(_table(kind, listed, context))
    return "\n".join(parts)


def is_common(parameter: Any) -> bool:
    """Say whether every command has this option."""
    return parameter.name in Common.__dataclass_fields__


def _argument(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    return name if parameter.required else f"[{name}]"


def _table(kind: str, parameters: list[Any], context: Any) -> str:
    rows = []
    for parameter in parameters:
        name, words = _describe(parameter, context)
        shown = _argument(parameter) if parameter.param_type_name == "argument" else name
        rows.append(f"| `{shown}` | {words} |")
    return "\n".join([f"| {kind} | what it does |", "|---|---|", *rows, ""])


def _describe(parameter: Any, context: Any) -> tuple[str, str]:
    """Return a parameter's name and words as the help has them; no bar, which would part a cell."""
    name, words = parameter.get_help_record(context)
    said, _, note = (part.strip() for part in words.partition("  ["))
    for kind, shown in KINDS.items():
        name = name.replace(kind, shown)
    if choices := re.search(r"<([\w|]+)>$", name):
        name = name.replace(choices[0], "NAME")
        said = f"{said} One of `{'`, `'.join(choices[1].split('|'))}`."
    if note:
        plain = re.sub(r"^default: \((.*)\)$", r"default: \1", note.removesuffix("]"))
        said += f" *{plain}*"
    for letter, written in {"<": "&lt;", ">": "&gt;", "|": "&#124;"}.items():
        said = said.replace(letter, written)
    return name.replace("|", " or "), said


if __name__ == "__main__":
    PAGE.write_text(write_commands(), encoding="utf-8")

"""Command lines: each command with what it needs, and some of it odd.

The parameters are the commands' own, as typer knows them: a new option is drawn from at once.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer

from ffnprobe.cli.main import app
from tests.fuzz.odd_files import DIGITS

INTEGERS = ("0", "-1", "1", "2", "7", "1000000", "1000000000", str(2**31), str(2**63), str(2**64),
            str(-(2**63) - 1), DIGITS, "1e3", "0x10", "٣", "", " 5", "--")  # fmt: skip
NUMBERS = ("0", "-1", "0.5", "1e-320", "1e308", "nan", "inf", "-inf", DIGITS, "", "one")
WORDS = ("the cat sat on the", " the", " cat", "the", "", " ", "\n", "-", "--", "L0N1", "L1", "L0-L2",
         "L0N1-5", f"L0N{DIGITS}", f"L{DIGITS}N1", f"L0-{DIGITS}", "L0N1=2", "L0N1=nan", f"L0N1={DIGITS}",
         f"{DIGITS}=1", "0", "0,1", "-1", "3,99", "all", "1,,2", DIGITS, "٣", "naïve café 中文", "🙂" * 40,
         "\u202eabc\u2066", "\udcff\udc80", "x" * 300, "the cat " * 4000, "a\u0300" * 50, "{}", "[X]",
         "$(id)", "; rm -rf x", "../..", "[bold]the[/bold]", "<b>&amp;", "does")  # fmt: skip
PATHS = ("", ".", "..", "-", "~nobody/x", "/dev/null", "/dev/zero", "/dev/full", "gone/there.csv",
         "gone.csv", "n" * 300, f"{'n' * 300}.csv", "x/" * 2000, "new\nline.csv", "caf\udce9.csv",
         "pocket", "hub:", "hub:no/such", "*.txt", "[", "**", "\ufeff.csv", "a.html", "c.json",
         "d.md", "e.parquet", "f.csv", "g.xlsx", "stores/new")  # fmt: skip
MODELS = ("", "gtp2", "owner/name", f"owner/{'n' * 300}", "a/b/c", "own er/na me", "owner/na--me", "-x/y",
          "owner/name.git", "n" * 300, f"{'n' * 300}.gguf", "naïve/中文", "\udcff", "a\nb/c", "/", "..")  # fmt: skip
STDIN = (b"", b"the cat sat", b"\xff\xfe", b"the cat\n" * 2000, b"\0")
# What a command needs to do something at all.
NEEDS = {"prompt": ("the cat sat on the", "-"), "answer": (" the", " cat"), "neurons": ("L0N1", "L1N2-4"),
         "tokens": (" the", " cat"), "texts": ("{}/texts/good.txt", "-", "{}/texts/rows.jsonl"),
         "facts": ("{}/facts/good.csv", "{}/facts/good.json"), "store": ("stores/made",), "mcp": ("",),
         "other": ("pocket",), "neuron": ("L0N1", "L0N1@2"), "source": ("the cat sat",),
         "target": ("the sat sat",), "other_answer": (" cat",), "file": ("{}/facts/good.csv",), "results": ("gone.json",), "to": ("site",)}  # fmt: skip
# Where a file is named that is read.
FILES = ("texts", "facts", "model", "store", "contrast_from", "results", "also", "file")
# Slow to start and tested for itself, or a shell's: not drawn.
LEFT_OUT = {("engine", "ray")}


@dataclass(frozen=True)
class Case:
    """One command line, and its standard input."""

    words: tuple[str, ...]
    stdin: bytes

    def __str__(self) -> str:
        return " ".join(
            word if len(word) < 90 else f"{word[:90]}…" for word in map(repr, self.words)
        )


def draw_cases(
    many: int, seed: int, folder: Path, files: Sequence[Path], model: Path
) -> Iterator[Case]:
    """Draw command lines: most of each is right, one to three values are anything."""
    drawn = random.Random(seed)
    commands: dict[tuple[str, ...], Any] = {}
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        several = getattr(command, "commands", None)  # batch has one for each verb
        commands |= {(name, verb): each for verb, each in several.items()} if several else {(name,): command}  # fmt: skip
    once = [name for name in sorted(commands) if name[0] != "batch"]
    batches = [name for name in sorted(commands) if name[0] == "batch"]
    paths = (*PATHS, *map(str, files))
    # Whatever can be written over is; so only what cannot is named for it.
    targets = (*PATHS, *(str(path) for path in files if not path.is_file() and path.exists()))
    for _ in range(many):
        often = [("scan",), ("score",), ("scan",), ("score",)]
        name = drawn.choice([*once, drawn.choice(batches), *often])
        parameters = list(commands[name].params)
        needed = [p for p in parameters if p.required]
        optional = [p for p in parameters if not p.required and p.name not in ("help", "debug")]
        odd = drawn.sample(parameters, drawn.choice((0, 1, 1, 1, 2, 3)))
        odd += [
            p for p in parameters if p.name in FILES and not odd.count(p) and drawn.random() < 0.4
        ]
        words: list[str] = []
        chosen = [*needed, *(p for p in odd if p in optional)]
        chosen += [p for p in drawn.sample(optional, 2) if p not in chosen]
        for parameter in chosen:
            named = targets if parameter.name in ("out", "html", "plot") else paths
            value = _draw(drawn, parameter, named, folder, is_odd=parameter in odd)
            if value is None:
                continue
            if parameter.param_type_name == "argument":
                words.append(value)
            elif parameter.is_flag:
                words.append(drawn.choice((*parameter.opts, *parameter.secondary_opts)))
            else:
                words += (parameter.opts[0], value)
        if "--model" not in words:
            words += ("--model", str(model))
        if name == ("explore",):
            words.append("--no-open")
        yield Case((*name, *words), drawn.choice(STDIN))


def _draw(
    drawn: random.Random, parameter: Any, paths: Sequence[str], folder: Path, *, is_odd: bool
) -> str | None:
    """Draw a value of a parameter; None to leave the parameter out."""
    kind = parameter.type_descriptor.annotation
    if not is_odd:
        if parameter.name in NEEDS:
            return drawn.choice(NEEDS[parameter.name]).format(folder)
        if get_origin(kind) is not Literal and kind is not bool:
            return None
    if get_origin(kind) is Literal:
        values = [each for each in get_args(kind) if (parameter.name, each) not in LEFT_OUT]
        return drawn.choice([*values, "other", ""] if is_odd else values)
    if kind is bool:
        return ""
    if kind is int:
        return drawn.choice(INTEGERS)
    if kind is float:
        return drawn.choice(NUMBERS)
    if parameter.name == "model":
        return drawn.choice((*MODELS, *(p for p in paths if "/models/" in p)))
    if kind is Path or parameter.name in FILES:
        return drawn.choice(paths)
    return drawn.choice(WORDS)

"""The tree in docs/design.md is the tree of folders and files, in the order of import-linter's layers."""

import re
import tomllib

from tests.whole.pages import ROOT

PAGE = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
# Subfolders of rooms, listed with their room, and what is no module of its own.
ENTRIES = {"__init__", "__main__"}


def read_tree() -> list[tuple[list[str], list[str]]]:
    """Read the tree: of each line the names that stand there, and of a room its modules."""
    block = PAGE.partition("```text\nffnprobe/\n")[2].partition("```")[0]
    lines: list[tuple[list[str], list[str]]] = []
    for line in block.splitlines():
        if line.startswith("      "):
            lines[-1][1].extend(re.findall(r"[a-z_/]+", line))
        else:
            names, _, words = line.strip().partition("  ")
            assert words.strip(), f"{names}: what is it?"
            lines.append((names.split(), []))
    return lines


def list_modules(room: str) -> set[str]:
    """List the modules of a room, those of its subfolders behind their folder's name."""
    folder = ROOT / "ffnprobe" / room
    files = {file.relative_to(folder).with_suffix("") for file in folder.rglob("*.py")}
    names = {
        file.parent.as_posix() + "/" if file.name == "__init__" else file.as_posix()
        for file in files
    }
    return names - {"./"}


def test_rooms_stand_in_the_order_of_the_layers():
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = contract["tool"]["importlinter"]["contracts"][0]["layers"]
    wanted = [set(layer.replace("ffnprobe.", "").split(" : ")) for layer in reversed(layers)]
    told = [{name.rstrip("/") for name in names} for names, _ in read_tree()]
    assert told == [layer for layer in wanted if layer != {"__main__"}]


def test_every_file_stands_in_the_tree():
    top = {file.stem for file in (ROOT / "ffnprobe").glob("*.py")} - ENTRIES
    folders = {file.parent.name + "/" for file in (ROOT / "ffnprobe").glob("*/__init__.py")}
    assert {name for names, _ in read_tree() for name in names} == top | folders
    for names, modules in read_tree():
        if modules:
            (room,) = [name for name in names if name.endswith("/")]
            assert len(modules) == len(set(modules))
            assert set(modules) == list_modules(room.rstrip("/")), room

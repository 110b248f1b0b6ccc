"""The pages people read, cut into blocks of code, and how each kind of block is run."""

import contextlib
import doctest
import io
import json
import re
import runpy
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.runner import ffnprobe

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
# `csv` and `text` are shown; with a title they are a file of that name. `pycon` is a docstring's example,
# which the doctests run. The others are run here.
LANGUAGES = ("python", "console", "sh", "sql", "csv", "text", "pycon")
FENCE = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+) -->\n)?```(?P<language>\w*)(?P<options>[^\n]*)\n"
    r"(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
TITLE = re.compile(r'title="([\w.]+)"')
# What sets up an environment is run by .ci/run, word for word.
SETTING_UP = ("pip", "pytest", "ruff", "mypy", "mkdocs", "python -m build")


@dataclass(frozen=True)
class Block:
    """One fenced block: its page, its first line there, its language, and why it is not run."""

    page: Path
    line: int
    language: str
    options: str
    text: str
    reason: str | None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def read_blocks(page: Path) -> Iterator[Block]:
    """Cut a page's blocks of code out."""
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(
            page, line, found["language"], found["options"], found["text"], found["reason"]
        )  # fmt: skip


def prose(page: Path) -> str:
    """Return a page, or a notebook's text, without its blocks of code."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells)
    return FENCE.sub("", text)


def run_block(block: Block, names: dict[str, Any]) -> None:
    """Run a block in the folder we are in; `names` are the variables its page shares."""
    if title := TITLE.search(block.options):
        Path(title[1]).write_text(block.text, encoding="utf-8")
    elif block.language == "sh":
        for line in block.text.replace("\\\n", " ").splitlines():
            run_line(line, str(block))
    elif block.language == "console":
        command, _, shown = block.text.partition("\n")
        with pytest.MonkeyPatch.context() as patch:  # a page shows what a plain terminal shows
            patch.setenv("COLUMNS", "80")
            compare(run_line(command.removeprefix("$ "), str(block)), shown)
    elif block.language == "sql":
        duckdb = pytest.importorskip("duckdb", reason="needs duckdb, the extra `test`")
        assert duckdb.sql(block.text).fetchall(), block
    elif block.language == "python" and block.text.startswith(">>> "):
        run_session(block, names)
    elif block.language == "python":
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(block.text, str(block), "exec"), names)


def run_session(block: Block, names: dict[str, Any]) -> None:
    """Run lines with prompts and compare what they print."""
    session = doctest.DocTestParser().get_doctest(block.text, names, str(block), None, None)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    said = io.StringIO()
    failed = runner.run(session, out=said.write, clear_globs=False).failed
    names.update(session.globs)
    assert failed == 0, said.getvalue()


def run_line(line: str, where: str) -> str:
    """Run a line of a shell and return what it printed."""
    words = shlex.split(line, comments=True)
    if not words:
        return ""
    if line.startswith(SETTING_UP):
        runs = (ROOT / ".ci" / "run").read_text(encoding="utf-8").replace("install -q", "install")
        assert line in runs, f"{where}: .ci/run does not run {line}"
        return ""
    if words[0] == "ffnprobe":
        result = ffnprobe(*words[1:])
        assert result.exit_code == 0, f"{where}: {line}\n{result.output}"
        return result.stdout
    assert words[0] == "python", f"{where}: who runs {line}?"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(str(ROOT / words[1]))["main"](words[2:])
    return printed.getvalue()


def compare(printed: str, shown: str) -> None:
    """Compare what was printed with what a page shows, word by word."""
    pairs = zip(printed.split(), shown.split(), strict=True)
    assert [(a, b) for a, b in pairs if not same(a, b)] == []


def same(ours: str, shown: str) -> bool:
    """Compare words exactly and numbers within what another processor may round differently."""
    with contextlib.suppress(ValueError):
        one, other = (float(word.replace(",", "")) for word in (ours, shown))
        return abs(one - other) <= 2e-3 + 0.02 * abs(other)
    return ours == shown or set(ours + shown) <= {"─"}

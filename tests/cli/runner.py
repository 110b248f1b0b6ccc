"""Run a command in this process and keep what it printed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from typer.testing import CliRunner, Result

from ffnprobe.cli.main import app


def ffnprobe(*words: str | Path, stdin: str | bytes | None = None) -> Result:
    """Run `ffnprobe WORDS`; its exit code, stdout and stderr are in the result."""
    return CliRunner().invoke(app, [str(word) for word in words], input=stdin)


def refused(*words: str | Path, stdin: str | bytes | None = None) -> str:
    """Run a command that must fail with a stated error; return what it said."""
    result = ffnprobe(*words, stdin=stdin)
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    stated = result.stderr[result.stderr.index("error: ") :]
    assert len(stated.splitlines()) <= 3, "an error is at most three lines"
    assert "Traceback" not in result.stderr
    return stated


@contextmanager
def nothing_written(folder: Path) -> Iterator[None]:
    """Check that a folder holds the same files before and after."""
    before = sorted(os.listdir(folder))
    yield
    assert sorted(os.listdir(folder)) == before

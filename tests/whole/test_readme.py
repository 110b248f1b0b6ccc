"""The README is true: its Python runs, its commands print what it shows."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from tests.cli.runner import ffnprobe

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"```console\n\$ ffnprobe (.*?)\n(.*?)```", README, flags=re.DOTALL)


def same(ours: str, shown: str) -> bool:
    """Compare words exactly and numbers within what another processor may round differently."""
    with contextlib.suppress(ValueError):
        one, other = (float(word.replace(",", "")) for word in (ours, shown))
        return abs(one - other) <= 2e-3 + 0.02 * abs(other)
    return ours == shown or set(ours + shown) <= {"─"}


@pytest.mark.parametrize(("command", "output"), SHOWN, ids=[command for command, _ in SHOWN])
def test_commands_print_what_the_readme_shows(command, output):
    result = ffnprobe(*shlex.split(command))
    assert result.exit_code == 0, result.output
    printed, shown = result.stdout.split(), output.split()
    wrong = [(a, b) for a, b in zip(printed, shown, strict=True) if not same(a, b)]
    assert not wrong


def test_the_readme_shows_the_main_job():
    assert len(SHOWN) >= 4
    assert SHOWN[0][0].startswith('explain "Michael Jordan plays the sport of" " basketball"')


def test_python_in_the_readme_runs():
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert blocks
    for block in blocks:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(block, "README.md", "exec"), {})
        assert "␣basketball" in printed.getvalue()


def test_continuous_integration_runs_the_readmes_test_command():
    command = 'pip install -e ".[test]" && pytest'
    assert f"```\n{command}\n```" in README
    assert command.replace("install", "install -q") in (ROOT / ".ci" / "run").read_text()


def test_every_command_and_verb_is_in_the_readme():
    from ffnprobe.cli.main import app

    for info in app.registered_commands:
        assert f"`{info.name}" in README, info.name

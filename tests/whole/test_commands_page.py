"""docs/commands.md is what the help says, and the help says something of everything."""

import re
import runpy

import pytest
import typer

from ffnprobe.cli.main import app
from ffnprobe.verbs import VERBS
from tests.whole.pages import ROOT

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
PAGE = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")


def test_the_page_is_written_from_the_help():
    made = runpy.run_path(str(ROOT / "docs" / "scripts" / "commands.py"))["write_commands"]()
    assert made == PAGE, "python docs/scripts/commands.py writes it again"


def test_a_batch_takes_every_verb_of_a_prompt_with_its_options():
    section = PAGE.partition("\n## batch\n")[2].partition("\n## ")[0]
    asked = [verb.name for verb in VERBS.values() if verb.takes_prompt]
    assert len(asked) > 10
    for verb in asked:
        command = COMMANDS["batch"].commands[verb.replace("_", "-")]
        own = {each.name for each in COMMANDS[verb.replace("_", "-")].params}
        assert {each.name for each in command.params} - own <= {"file", "store"}
        assert f"`{verb.replace('_', '-')}`" in section


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "batch"])
def test_every_command_and_flag_is_described(name):
    command = COMMANDS[name]
    assert command.help, f"{name} has no words"
    shared = PAGE.partition("## Options of every command")[2].partition("\n## ")[0]
    section = PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    assert command.help.splitlines()[0] in section
    for parameter in command.params:
        assert parameter.help, f"{name}: {parameter.name} has no words"
        if parameter.param_type_name == "option":
            for flag in (*parameter.opts, *parameter.secondary_opts):
                assert re.search(rf"(?<![\w-]){flag}(?![\w-])", section + shared), flag

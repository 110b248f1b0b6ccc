"""A verb is declared once, by its signature; command, tool, batch and recipe follow."""

import inspect
import json
import shlex
from typing import Annotated, Any, get_args, get_origin

import pytest
from pandas.testing import assert_frame_equal
from typer.testing import CliRunner

import ffnprobe as fp
from ffnprobe.asking import answer
from ffnprobe.cli import verb_commands as commands
from ffnprobe.cli.command import HelpGroup
from ffnprobe.cli.main import app
from ffnprobe.errors import OptionRefused
from ffnprobe.recipes import write_recipe
from ffnprobe.verbs import VERBS, Verb
from tests.cli.runner import ffnprobe, refused
from tests.conftest import JORDAN

GOLF = "Tiger Woods plays the sport of"
# What each verb is asked; those that take a store or texts have tests of their own.
ASKED: dict[str, dict[str, Any]] = {
    "run": {"prompt": JORDAN},
    "explain": {"prompt": JORDAN, "answer": " basketball", "top": 3, "versus": " golf"},
    "attribute": {"prompt": JORDAN, "contrast": [GOLF]},
    "paths": {"prompt": JORDAN, "answer": " basketball", "depth": 2},
    "circuit": {"prompt": JORDAN, "keep": 5, "sign": "toward"},
    "compare": {"prompt": JORDAN, "other": GOLF},
    "drivers": {"prompt": JORDAN, "neuron": "L1N505", "position": 2},
    "lens": {"prompt": JORDAN, "answer": " golf"},
    "stages": {"prompt": JORDAN, "layer": 3},
    "similarity": {"prompt": "Tiger Woods"},
    "ablate": {"prompt": JORDAN, "neuron": ["L1N505", "L3N361"], "position": 2, "estimates": True},
    "ablate_layers": {"prompt": "Tiger Woods", "log_probability": False},
    "estimate": {"prompt": JORDAN, "convention": "folded"},
    "patch": {"source": JORDAN, "target": "Tom Watson plays the sport of", "answer": " basketball",
              "other_answer": " golf", "neuron": ["L5"], "position": [2, 6]},
    "patch_layers": {"source": "Michael Jordan plays", "target": "Tom Watson plays",
                     "answer": " the", "other_answer": " in"},
    "steer": {"prompt": JORDAN, "activations": {"L3N12": 4.0}, "scale": {"L1": 0.5}, "generate": 2},
    "read": {"neurons": ["L3N361", "L4N26"], "convention": "raw"},
    "check_lists": {"neurons": ["L3N361", "L1N505"], "top": 4, "text": ["The cat sat on the mat and slept"]},
    "related": {"neuron": "L3N361", "top": 3},
    "search": {"tokens": [" golf", " tennis"], "rank": "dot", "away": True},
    "survey": {"layers": "6", "top": 2},
    "match": {"other": "pocket", "top": 2, "seed": 1},
}  # fmt: skip
BY_HAND = {"scan", "label", "score", "fit_lens"}


@pytest.fixture(scope="module")
def own(pocket) -> fp.Model:
    """The model as commands load it."""
    return fp.load("pocket", device="cpu")


@pytest.mark.parametrize("name", VERBS)
def test_what_is_read_from_the_source_is_the_signature(name):
    verb = VERBS[name]
    found = inspect.signature(verb.function).parameters
    read = [each for each in verb.parameters if not each.is_shown]
    assert [each.name for each in read] == list(found)
    for each in read:
        real = found[each.name]
        assert each.default == real.default or each.default is real.default
        assert each.is_keyword == (real.kind is real.KEYWORD_ONLY)
        if get_origin(real.annotation) is Annotated:
            _, option = get_args(real.annotation)
            assert each.option.words == option.words
            assert each.option.choices == option.choices
            assert (each.option.least, each.option.most) == (option.least, option.most)
        elif each.role != "Trace":
            assert each.option is None
    assert verb.words == inspect.getdoc(verb.function).partition("\n\n")[0].replace("\n", " ")


def test_every_verb_is_asked_here():
    assert set(ASKED) | BY_HAND == set(VERBS)


@pytest.mark.parametrize("name", ASKED)
def test_command_and_python_of_a_recipe_give_the_same(name, own, capsys):
    asked = answer(VERBS[name], own, ASKED[name], find_model=lambda other: own)
    recipe = write_recipe(asked.result)
    made: dict[str, Any] = {}
    exec(compile(recipe.python, "recipe", "exec"), made)
    again = made["found"].tables()
    assert asked.result.title == made["found"].title
    for table, rows in asked.result.tables().items():
        assert_frame_equal(rows, again[table], rtol=1e-4, atol=1e-5)
    command, *words = shlex.split(recipe.command)[1:]
    body = json.loads(ffnprobe(command, "--format", "json", *words).stdout)
    first = next(iter(asked.tables.values()))
    printed = body["rows"] if len(asked.tables) == 1 else body[next(iter(asked.tables))]
    column = next(name for name in ("name", "token", *first.columns) if name in first)
    assert [row[column] for row in printed] == first[column].tolist()


@pytest.fixture
def toy(monkeypatch):
    """One declaration: a function, and where it is."""
    verb = Verb("shout", "tests.shouting", "tests.shouting.Shout", grade="none: it is only loud")
    monkeypatch.setitem(VERBS, "shout", verb)
    monkeypatch.setitem(HelpGroup.derived, "shout", lambda: commands.make_verb(verb))
    return verb


def test_a_toy_verb_is_a_command(toy):
    done = CliRunner().invoke(app, ["shout", JORDAN, "--times", "3", "--tone", "shrill", "-q"])
    assert done.stdout.count(" BASKETBALL!") == 3
    told = CliRunner().invoke(app, ["shout", "--help"]).stdout
    for words in ("Say an answer loudly.", "--times N", "How often it is said.", "<loud|shrill>"):
        assert words in told
    assert "shout " in CliRunner().invoke(app, ["--help"]).stdout
    assert "times = 10: it must be from 1 to 9." in refused("shout", JORDAN, "--times", "10")
    assert "Did you mean 'shout'" in CliRunner().invoke(app, ["shuot"]).stderr


def test_a_toy_verb_is_a_tool(toy, monkeypatch):
    pytest.importorskip("mcp", reason="needs the extra mcp")
    from ffnprobe.serving import tools
    from ffnprobe.serving.service import ServedModels, Service

    monkeypatch.setitem(tools.TOOLS, "shout", tools.make_tool(toy))
    schema = tools.write_schema(tools.TOOLS["shout"].parameters)
    assert schema["required"] == ["prompt"]
    assert schema["properties"]["times"] == {
        "type": "integer", "minimum": 1, "maximum": 9, "default": 2,
        "description": "How often it is said.",
    }  # fmt: skip
    assert schema["properties"]["tone"]["enum"] == ["loud", "shrill"]
    service = Service(ServedModels(["pocket"], device="cpu", most_bytes=2**31))
    found = service.answer(service.read("shout", {"prompt": JORDAN, "times": 3, "top": 1}))
    assert (found["rows"], found["grade"]) == ([[" BASKETBALL"]], "none: it is only loud")
    with pytest.raises(OptionRefused, match="times = 10: it must be from 1 to 9"):
        service.read("shout", {"prompt": JORDAN, "times": 10})


def test_a_toy_verb_is_a_batch_verb(toy, own, tmp_path):
    found = fp.batch(own, [JORDAN, GOLF], verb="shout", times=1)
    assert found.table.word.tolist() == [" BASKETBALL", " GOLF"]
    assert found.table.answer.tolist() == [" basketball", " golf"]
    with pytest.raises(OptionRefused, match="volume = 3: shout takes no such option"):
        fp.batch(own, [JORDAN], verb="shout", volume=3)
    (tmp_path / "p.txt").write_text(f"{JORDAN}\n{GOLF}\n")
    done = CliRunner().invoke(app, ["batch", "shout", str(tmp_path / "p.txt"), "--times", "1"])
    assert " GOLF" in done.stdout


def test_a_toy_verb_has_a_recipe_and_is_checked(toy, own):
    found = answer(toy, own, {"prompt": JORDAN, "times": 3}).result
    recipe = write_recipe(found)
    assert recipe.command == f"ffnprobe shout --model pocket --times=3 -- '{JORDAN}'"
    assert recipe.python.splitlines()[3:] == [
        f"trace = fp.run(model, {JORDAN!r})", "found = fp.shout(trace, times=3)", "print(found)",
    ]  # fmt: skip
    trace = fp.run(own, JORDAN)
    with pytest.raises(OptionRefused, match="tone = 'low': it must be loud or shrill"):
        toy.function(trace, tone="low")
    with pytest.raises(OptionRefused, match="times = 'x': shout takes a whole number"):
        toy.function(trace, times="x")

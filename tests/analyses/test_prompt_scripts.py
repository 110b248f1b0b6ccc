"""Every script that is run on a prompt or a table, as a user runs it: words, page, errors, exit codes."""

import ast
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import ffnprobe as fp

ROOT = Path(__file__).parents[2]
JORDAN, WOODS = "Michael Jordan plays the sport of", "Tiger Woods plays the sport of"
# What each is given, and what it must print; numbers are those of its docstring.
SCRIPTS = {
    "explain_prompt": (
        [JORDAN],
        ["␣basketball, 99.97 %", "3 neurons at ␣Jordan carry it", "Without them 34.9 %", "Held back by L1N42@2",
         "what gave L3N361", "what its heads read", "L0H5"],
    ),
    "neuron_report": (
        [" basketball", "--top", "5"],
        ["kinds of neuron in pocket", "partition", "the most selective answers", "L3N202",
         "who promotes ' basketball', by z", "L3N361", "by dot"],
    ),
    "compare_prompts": (
        [JORDAN, WOODS],
        ["␣basketball rather than ␣golf: +13.9", "difference of pushes", "difference of activations",
         "L6N671", "activation second", "layer by layer, of +28.2"],
    ),
    "layer_by_layer": (
        [JORDAN],
        ["what the stream says at ␣of, on ␣basketball", "MLP", "through each FFN", "above zero",
         "what each layer pushed, in logits"],
    ),
    "fact_recall": (
        ["--quick"],
        ["pocket knows", "neurons of sport", "neurons that facts share", "removed together", "L1N740"],
    ),
}  # fmt: skip
ON_PROMPTS = [name for name in SCRIPTS if name not in ("fact_recall", "neuron_report")]


class Done(NamedTuple):
    """How a run ended."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run(capsys, monkeypatch):
    """Run a script as `python analyses/NAME.py …` does, within this process, which has torch already."""

    def start(name, *arguments):
        script = str(ROOT / "analyses" / f"{name}.py")
        monkeypatch.setattr(sys, "argv", [script, *arguments])
        code = 0
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as end:
            code = end.code or 0
        return Done(code, *capsys.readouterr())

    return start


def test_a_process_of_its_own_ends_alike(run):
    script = str(ROOT / "analyses" / "compare_prompts.py")
    for arguments in ([JORDAN, WOODS, "--top", "3"], [JORDAN, WOODS, "--position", "40"]):
        done = subprocess.run(
            [sys.executable, script, *arguments], capture_output=True, text=True, check=False,
            encoding="utf-8", env=os.environ | {"PYTHONIOENCODING": "utf-8"},
        )  # fmt: skip
        assert done.returncode == ("40" in arguments)
        assert (done.returncode, done.stdout, done.stderr) == run("compare_prompts", *arguments)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_prints_its_tables_and_writes_a_whole_page(name, tmp_path, run):
    arguments, words = SCRIPTS[name]
    page = tmp_path / "page.html"
    done = run(name, *arguments, "--html", str(page))
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stdout, f"{word!r} is not in\n{done.stdout}"
    html = page.read_text(encoding="utf-8")
    assert html.lower().startswith("<!doctype html>")
    assert html.endswith("</body></html>\n")
    assert html.count("<!doctype html>") == 1
    assert list(tmp_path.iterdir()) == [page], "nothing else is left behind"


def test_the_whole_survey_is_a_table(tmp_path, run):

    target = tmp_path / "neurons.csv"
    done = run("neuron_report", "--layers", "5", "--top", "3", "--table", str(target))
    assert done.returncode == 0, done.stderr
    table = fp.open_result(target).table
    assert len(table) == 768
    assert set(table.layer) == {5}


def test_what_is_asked_is_what_is_compared(run):
    done = run("compare_prompts", JORDAN, WOODS, "--answer", " basketball", "--top", "3")
    first = done.stdout.splitlines()[0]
    assert first.startswith("␣basketball: +"), "the answer alone, without a rival"
    back = run("compare_prompts", WOODS, JORDAN, "--answer", " basketball", "--top", "3")
    assert "layer by layer, of +" in done.stdout
    assert "layer by layer, of -" in back.stdout
    told = run("layer_by_layer", JORDAN, " golf", "--position", "2")
    assert "at ␣Jordan, on ␣golf" in told.stdout


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("explain_prompt", [JORDAN, ""], '"" is not a token'),
        ("explain_prompt", ["", " golf"], "the prompt is empty"),
        ("explain_prompt", [JORDAN, "--model", "pockt"], "is not a known model"),
        ("neuron_report", ["--layers", "9"], "L9: pocket has layers L0–L6"),
        ("neuron_report", ["--table", "survey.xls"], '".xls" is not a format'),
        ("neuron_report", [" Schrödinger"], "tokens here"),
        ("compare_prompts", [JORDAN, WOODS, "--position", "40"], "position 40 is outside"),
        ("compare_prompts", [JORDAN, WOODS, "--answer", " golf", "--versus", " golf"], "nothing to"),
        ("compare_prompts", [JORDAN, WOODS, "--top", "0"], "top = 0"),
        ("layer_by_layer", [JORDAN, "--position", "-9"], "position -9 is outside"),
        ("fact_recall", ["--quick", "--facts", "nowhere.csv"], "nowhere.csv"),
        *((name, [*given, "--html", "no/such/page.html"], "there is no folder") for name, (given, _) in SCRIPTS.items()),
        *((name, [*given, "--html", "page.pdf"], '".pdf" is not a format') for name, (given, _) in SCRIPTS.items()),
    ],
)  # fmt: skip
def test_an_error_is_said_in_words(name, arguments, words, run):
    done = run(name, *arguments)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stderr.startswith("error: ")
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 3
    assert done.stdout == ""


@pytest.mark.parametrize("name", ON_PROMPTS)
def test_without_a_prompt_the_usage_is_wrong(name, run):
    done = run(name)
    assert done.returncode == 2
    assert "usage:" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", SCRIPTS)
def test_help_asks_the_scripts_question(name, run):
    done = run(name, "--help")
    assert done.returncode == 0
    source = (ROOT / "analyses" / f"{name}.py").read_text(encoding="utf-8")
    question = source.split("\n")[0].removeprefix('"""')
    assert question.endswith("?")
    assert question in " ".join(done.stdout.split())
    for option in ("--model", "--html"):
        assert option in done.stdout


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_one_question_put_to_public_names(name):
    source = (ROOT / "analyses" / f"{name}.py").read_text(encoding="utf-8")
    tree = ast.parse(source)
    docstring = ast.get_docstring(tree)
    assert len(source.splitlines()) < 80
    for part in ("\nMethod: ", "\nFound on pocket", f"python analyses/{name}.py"):
        assert part in docstring
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert functions == ["main"], "what more there is belongs in the package"
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    private = {n for n in names if n.startswith("_") and not n.startswith("__")}
    assert not private

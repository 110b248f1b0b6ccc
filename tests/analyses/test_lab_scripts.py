"""Each script of the lab: its tables, its figures in one file, its errors in words."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ANALYSES = Path(__file__).parents[2] / "analyses"
# What each is given, what it must print, and how many figures it draws.
SCRIPTS = {
    "toy_ffn": ([], ["mixed: every stage", "-1.95", "-0.935", "identity: neurons"], 4),
    "activation_functions": (["--quick"], ["-0.170", "-0.278", "share below zero", "L5"], 3),
    "activation_comparison": (["--quick"], ["swiglu_equal", "gathers in the bump", "not SST-2"], 6),
    "embedding_similarity": ([], ["␣basketball", "after L5", "entropy"], 3),
    "superposition": (["--quick"], ["effective dimension", "known facts", "signals kept"], 3),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_prints_tables_and_writes_figures(name, capsys, tmp_path):
    given, words, figures = SCRIPTS[name]
    main = runpy.run_path(str(ANALYSES / f"{name}.py"))["main"]
    page = tmp_path / "page.html"
    main([*given, "--html", str(page)])
    printed = capsys.readouterr().out
    assert all(word in printed for word in words), printed
    html = page.read_text(encoding="utf-8")
    assert html.count("<figure>") == figures
    assert html.count("<!doctype html>") == 1
    if name == "activation_comparison":
        # Every figure says that these are not SST-2's sentences.
        assert html.count("not SST-2") >= figures


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_one_question(name):
    source = (ANALYSES / f"{name}.py").read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 80
    assert source.startswith('"""')
    assert source.split("\n")[0].endswith("?")
    assert "\nFound" in source
    assert " _" not in source.replace("__", "")


def test_an_error_is_said_in_words(tmp_path):
    command = [sys.executable, str(ANALYSES / "activation_comparison.py"), "--data", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {tmp_path} lacks train.tsv")
    assert "Traceback" not in done.stderr


def test_a_run_is_resumed_from_its_store(tmp_path, capsys):
    main = runpy.run_path(str(ANALYSES / "activation_comparison.py"))["main"]
    main(["--quick", "--store", str(tmp_path / "runs")])
    first = capsys.readouterr().out
    stored = {path: path.read_bytes() for path in (tmp_path / "runs").glob("*.pt")}
    assert len(stored) == 10
    main(["--quick", "--store", str(tmp_path / "runs")])
    assert capsys.readouterr().out == first
    assert all(path.read_bytes() == content for path, content in stored.items())

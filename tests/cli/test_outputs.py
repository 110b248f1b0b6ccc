"""Where a command writes: never over what it reads, never two results in one file, nothing left."""

import os
import signal
import subprocess
import sys

import pytest

from tests.cli.runner import ffnprobe, refused

MAIN = "from ffnprobe.cli.main import main; main()"
FACTS = "prompt,answer\nthe cat, sat\n"


@pytest.fixture(scope="module")
def model(tiny_folder):
    return ("--model", tiny_folder, "--device", "cpu")


def test_two_results_in_one_file_are_refused(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page, same = tmp_path / "page.html", tmp_path / "." / "page.html"
    said = refused("read", "L0N1", "--out", page, "--html", same, *model)
    assert f"--out and --html name the same file, {same}." in said
    (tmp_path / "link.html").symlink_to(page)
    said = refused("read", "L0N1", "--html", "page.html", "--plot", tmp_path / "link.html", *model)
    assert "--html and --plot name the same file" in said
    assert os.listdir(tmp_path) == ["link.html"]


@pytest.mark.parametrize("how", ["{0}/facts.csv", "{0}", "{0}/*.csv"])
def test_the_facts_that_are_read_are_not_overwritten(model, tmp_path, how):
    path = tmp_path / "facts.csv"
    path.write_text(FACTS)
    said = refused("score", how.format(tmp_path), "--out", path, *model)
    assert f"--out {path} would overwrite what is read ({how.format(tmp_path)})." in said
    assert path.read_text() == FACTS
    link = tmp_path / "link.csv"
    link.symlink_to(path)
    assert "would overwrite what is read" in refused("score", path, "--out", link, *model)


def test_texts_stores_and_models_are_not_overwritten(model, tmp_path, tiny_folder):
    (tmp_path / "a.parquet").write_bytes(b"")
    words = ("scan", tmp_path, "--store", tmp_path / "s", *model)
    assert "would overwrite what is read" in refused(*words, "--out", tmp_path / "a.parquet")
    kept = tiny_folder / "config.json"
    before = kept.read_bytes()
    assert "would overwrite what is read" in refused("read", "L0N1", "--out", kept, *model)
    assert kept.read_bytes() == before


def test_a_result_may_be_written_again_beside_the_texts(model, tmp_path):
    (tmp_path / "a.txt").write_text("the cat sat")
    words = ("scan", tmp_path, "--store", tmp_path / "s", "--out", tmp_path / "out.csv", *model)
    for _ in range(2):
        assert ffnprobe(*words).exit_code == 0


def test_notes_never_land_in_the_result(tiny_folder, tmp_path):
    words = f"{sys.executable} -c '{MAIN}' read L0N1 --format csv -m {tiny_folder} --device cpu"
    whole = ffnprobe("read", "L0N1", "--format", "csv", "-m", tiny_folder, "--device", "cpu")
    closed = subprocess.run(f"{words} 2>&-", shell=True, capture_output=True, check=True)
    assert "weights" in whole.stderr
    assert closed.stdout.decode() == whole.stdout


ENDED = """
import os, signal
from ffnprobe import files
replaced = os.replace
def end(source, target):
    assert os.path.exists(source)
    os.kill(os.getpid(), signal.SIGTERM)
    replaced(source, target)
files.os.replace = end
"""


def test_sigterm_leaves_nothing_behind(tiny_folder, tmp_path):
    words = [sys.executable, "-c", ENDED + MAIN, "read", "L0N1", "--out", tmp_path / "r.csv",
             "--model", tiny_folder, "--device", "cpu"]  # fmt: skip
    done = subprocess.run(list(map(str, words)), capture_output=True, check=False)
    assert done.returncode == 128 + signal.SIGTERM, done.stderr
    assert b"Traceback" not in done.stderr
    assert os.listdir(tmp_path) == []

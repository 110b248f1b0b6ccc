"""`ffnprobe circuit`: what it prints and writes is what fp.circuit finds."""

import json

import pytest

import ffnprobe as fp
from tests.cli.runner import ffnprobe, nothing_written, refused

TEXT, OTHER = "the cat sat on the basketball court", "the dog sat on the basketball court"


@pytest.fixture(autouse=True)
def model(tiny_folder, monkeypatch):
    monkeypatch.setenv("FFNPROBE_MODEL", str(tiny_folder))


@pytest.fixture
def found(tiny):
    return fp.circuit(tiny, TEXT, " in", versus=" the", contrast=OTHER, keep=7)


ASKED = ("circuit", TEXT, " in", "--versus", " the", "--contrast", OTHER, "--keep", "7")


def test_it_prints_the_neurons_and_edges_and_says_that_all_adds_up(found):
    done = ffnprobe(*ASKED, "--top", "3")
    assert done.exit_code == 0, done.stderr
    names = [line.split()[0] for line in done.stdout.splitlines() if line[:1] == "L"]
    assert names[:3] == found.table.name.head(3).tolist()
    assert f"7 neurons kept; {len(found.targets)} scores add up within" in done.stderr
    assert (
        "influence: what the node is worth to the answer through the graph, in logits"
        in done.stdout
    )


def test_files_hold_everything(found, tmp_path):
    done = ffnprobe(*ASKED, "--test", "--out", tmp_path / "c.json", "--html", tmp_path / "c.html",
                    "--graph", tmp_path / "g.graphml")  # fmt: skip
    assert done.exit_code == 0, done.stderr
    tables = json.loads((tmp_path / "c.json").read_text())
    assert [row["name"] for row in tables["neurons"]] == found.table.name.tolist()
    assert len(tables["edges"]) == len(found.edges())
    assert {row["ranking"] for row in tables["recovery_summary"]} == {
        "influence", "gradient", "push", "activation", "random",
    }  # fmt: skip
    assert "is worth most to" in (tmp_path / "c.html").read_text()
    assert (tmp_path / "g.graphml").read_text().startswith("<?xml")


def test_mistakes_are_said_and_nothing_is_written(tmp_path):
    with nothing_written(tmp_path):
        said = refused(*ASKED, "--rule", "rescale", "--graph", tmp_path / "g.doc")
        assert '".doc" is not a format that results are written in' in said
        said = refused("circuit", TEXT, " in", "--rule", "rescale", "--out", tmp_path / "c.json")
        assert "needs contrast prompts" in said
        assert "keep = 0" in refused("circuit", TEXT, " in", "--keep", "0")

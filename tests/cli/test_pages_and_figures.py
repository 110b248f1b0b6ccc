"""`--html` and `--plot` on the commands: in addition to what is printed, checked before any work."""

import json
import os

import pytest

from ffnprobe.views import saving
from tests.cli.runner import ffnprobe, nothing_written, refused

TEXT = "the cat sat on the basketball court"


@pytest.fixture
def folder(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("FFNPROBE_MODEL", str(tiny_folder))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("run", TEXT), "comes next with probability"),
        (("lens", TEXT), "logit"),
        (("attribute", TEXT, " the"), "The parts add up to ␣the"),
        (("ablate", TEXT, " the", "--neuron", "L1"), "loses"),
        (("ablate-layers", TEXT, " the"), "without the MLP of"),
        (("estimate", TEXT, " the"), "The gradient estimates"),
        (("steer", TEXT, "--set", "L0N1=3"), "probability"),
        (("stages", TEXT, "--layer", "1"), "In the FFN of L1"),
        (("read", "L1N2"), "by its weights"),
        (("read", "L1N2", "L0N1"), "neurons have a kind"),
        (("search", " the"), "stands out most for ␣the"),
        (("survey", "--layers", "0"), "The neurons of"),
        (("explain", TEXT, " the"), "Why ␣the after"),
    ],
)
def test_a_page_is_written_beside_what_is_printed(folder, words, shown):
    plain = ffnprobe(*words, "--device", "cpu")
    both = ffnprobe(*words, "--device", "cpu", "--html", "page.html", "--plot", "figure.html")
    assert both.exit_code == 0, both.output
    assert both.stdout == plain.stdout
    assert "wrote page.html" in both.stderr
    assert "wrote figure.html" in both.stderr
    assert sorted(os.listdir(folder)) == ["figure.html", "page.html"]
    assert shown in (folder / "page.html").read_text(encoding="utf-8").partition("<script>")[0]


@pytest.mark.parametrize(
    ("words", "of"),
    [
        (("params",), "a table by itself"),
        (("models",), "a table by itself"),
        (("related", "L0N1"), "Related"),
    ],
)
def test_results_without_a_figure_have_a_page(folder, words, of):
    assert ffnprobe(*words, "--html", "page.html").exit_code == 0
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert len(page) < 100_000, "no figure, no plotly"
    os.unlink("page.html")
    with nothing_written(folder):
        assert f"there is no figure for {of}." in refused(*words, "--plot", "x.html")


@pytest.mark.parametrize(
    ("option", "name", "said"),
    [
        (
            "--html",
            "x.txt",
            '".txt" is not a format that results are written in (x.txt).\n  try: .html',
        ),
        ("--html", "no/x.html", "there is no folder no."),
        (
            "--plot",
            "x.jpg",
            '".jpg" is not a format that figures are written in (x.jpg).\n  try: .html, .png',
        ),
        ("--plot", "no/x.html", "there is no folder no."),
    ],
)
def test_a_file_that_cannot_be_written_is_said_before_the_work(folder, option, name, said):
    with nothing_written(folder):
        stated = refused("explain", TEXT, " the", option, name)
    assert said in stated


def test_a_png_without_kaleido_names_the_ways_on(folder, monkeypatch):
    monkeypatch.setattr(saving, "find_spec", lambda name: None)
    assert refused("run", TEXT, "--plot", "x.png") == (
        "error: a .png needs the package kaleido, which is not installed.\n"
        "  try: pip install kaleido, or --plot x.html\n"
    )


def test_a_csv_says_which_tables_it_leaves_out(folder):
    done = ffnprobe("attribute", TEXT, " the", "--out", "p.csv")
    assert (
        "wrote p.csv (the first table; .json, .md and .html also hold layers, parts)" in done.stderr
    )
    assert ffnprobe("attribute", TEXT, " the", "--out", "p.html").exit_code == 0
    assert (folder / "p.html").stat().st_size > 1_900_000


def test_a_temperature_is_in_the_provenance(folder):
    done = ffnprobe("run", TEXT, "--temperature", "2", "--format", "json")
    assert json.loads(done.stdout)["provenance"]["settings"] == {"temperature": 2.0}

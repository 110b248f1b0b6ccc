"""What a plain terminal of 80 columns shows: whole names, whole tokens, whole numbers."""

import re

import pytest
from rich.cells import cell_len

from tests.cli.runner import ffnprobe
from tests.conftest import JORDAN

COMMANDS = {
    "explain": (JORDAN, " basketball"),
    "attribute": (JORDAN, " basketball"),
    "paths": (JORDAN, " basketball"),
    "ablate": (JORDAN, " basketball", "--neuron", "L0"),
    "survey": ("--layers", "0"),
    "search": (" golf", " football"),
    "read": ("L1N505",),
    "drivers": (JORDAN, "L1N505", "--position", "2"),
    "patch": (JORDAN, "Tiger Woods plays the sport of", " basketball", " golf", "--neuron", "L1"),
    "run": (JORDAN,),
    "lens": (JORDAN,),
    "compare": (JORDAN, "Tiger Woods plays the sport of"),
    "ablate-layers": (JORDAN,),
    "estimate": (JORDAN,),
    "related": ("L1N505",),
    "similarity": (JORDAN,),
    "stages": (JORDAN,),
    "steer": (JORDAN, "--set", "L0=0"),
    "models": (),
    "params": (),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_table_fits_eighty_columns(name, monkeypatch, pocket):
    monkeypatch.setenv("COLUMNS", "80")
    result = ffnprobe(name, *COMMANDS[name], "--quiet")
    assert result.exit_code == 0, result.output
    assert max(map(cell_len, result.stdout.splitlines())) <= 80
    assert "…" not in result.stdout, "nothing is cut"
    for word in re.findall(r"\bL\d+N\S*", result.stdout):
        assert pocket.find_neuron(word.rstrip(",.;:").partition("@")[0])
    numbers = [
        word for word in result.stdout.split() if re.fullmatch(r"[-+\d.,e]*\d\.\d+(e-\d+)?", word)
    ]
    if name not in ("read",):
        assert all(len(re.sub(r"e.*|\D", "", word).lstrip("0")) <= 4 for word in numbers), numbers


@pytest.mark.parametrize("rank", ["z", "cosine", "dot"])
def test_a_search_shows_the_column_it_is_sorted_by(rank, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    head, _, *rows = (
        ffnprobe("search", " golf", "--rank", rank, "--quiet")
        .stdout.partition("name")[2].splitlines()
    )  # fmt: skip
    at = head.split().index(rank) + 1
    values = [float(row.split()[at]) for row in rows if row.startswith("L")]
    assert len(values) == 10
    assert values == sorted(values, reverse=True)


CAPTIONS = {
    "attribute": "pushes in logits, centred; all parts add up to the model's logit",
    "ablate": "effect: what the answer loses when the neurons are removed, in logits; centred, replace mean",
    "paths": "pushes in logits, centred; every head's shares add up to its push",
    "search": "answers ranked by z, centred; layers 0 to 6",
}


@pytest.mark.parametrize("name", CAPTIONS)
def test_how_to_read_a_table_is_printed_under_it_even_when_quiet(name):
    printed = ffnprobe(name, *COMMANDS[name], "--quiet").stdout
    assert printed.endswith(f"\n\n{CAPTIONS[name]}\n")


def test_the_convention_and_the_replacement_are_those_asked_for():
    asked = ("--convention", "folded", "--replace", "zero", "--quiet")
    for name, more in (("ablate", ()), ("explain", ("--full",))):
        printed = ffnprobe(name, *COMMANDS[name], *asked, *more).stdout
        assert "folded, replace zero" in printed.splitlines()[-1]


def test_a_centred_logit_is_not_called_the_models():
    words = ("ablate", JORDAN, " basketball", "--neuron", "L1N505")
    assert "␣basketball: logit 22.2" in ffnprobe(*words).stderr
    assert "above the vocabulary's mean, probability 0.9997" in ffnprobe(*words).stderr
    folded = ffnprobe(*words, "--convention", "folded").stderr
    assert "␣basketball: logit 21.0" in folded
    assert "vocabulary's mean" not in folded


def test_a_title_names_the_rival():
    printed = ffnprobe(
        "attribute", JORDAN, " basketball", "--versus", " football", "--quiet"
    ).stdout
    assert printed.startswith("␣basketball rather than ␣football after ")
    assert ": +14.32 logits; 15.7 of 14.3 logits come through attention from " in printed


def test_without_effects_the_heading_names_none():
    printed = ffnprobe("explain", *COMMANDS["explain"], "--quiet", "--no-effects").stdout
    assert "push: direct and through attention" in printed
    assert "effect" not in printed


def test_every_token_shown_is_a_whole_token(monkeypatch, pocket):
    monkeypatch.setenv("COLUMNS", "80")
    known = set(pocket.vocab.show_all(range(len(pocket.vocab))))
    for name in ("explain", "search", "ablate"):
        printed = ffnprobe(name, *COMMANDS[name], "--quiet").stdout
        shown = {word.rstrip(",.)") for word in printed.split() if word.startswith("␣")}
        assert shown <= known


def test_survey_shows_forty_rows_in_a_terminal_and_all_when_piped(monkeypatch, tiny_folder):
    words = ("survey", "--model", tiny_folder, "--device", "cpu", "--quiet")
    assert ffnprobe(*words).stdout.count("\nL") == 156
    monkeypatch.setenv("COLUMNS", "80")
    printed = ffnprobe(*words).stdout
    assert printed.count("\nL") == 40
    said = "the first 40 of 156 rows; all of them: --format csv, or --out FILE.csv"
    assert said in printed


def test_a_wide_terminal_shows_every_column(monkeypatch):
    monkeypatch.setenv("COLUMNS", "220")
    printed = ffnprobe("explain", *COMMANDS["explain"], "--quiet", "--full").stdout
    assert "not shown" not in printed
    assert "question tokens" in printed

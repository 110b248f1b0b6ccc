"""`ffnprobe explain`: the verdict first, ten rows, 25 lines at 80 columns; the rest on request."""

import pytest

from tests.cli.runner import ffnprobe
from tests.conftest import JORDAN

WORDS = ("explain", JORDAN, " basketball", "--model", "pocket")


def test_the_verdict_comes_first_and_all_is_25_lines(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    found = ffnprobe(*WORDS)
    assert found.exit_code == 0, found.output
    lines = found.stdout.splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 80
    assert lines[0] == f'␣basketball, 99.97 %, rank 1 of 5,022, after "{JORDAN}"'
    assert lines[1].startswith("3 neurons at ␣Jordan carry it: L3N361 L1N505 L2N225. Without them")
    heads = next(line for line in lines if line.startswith("name "))
    assert heads.split() == ["name", "token", "grade", "push", "effect", "asks", "says"]
    assert sum(line.startswith("L") for line in lines) == 10
    assert "Held back by L1N42@2 at ␣Jordan" in found.stdout
    assert lines[-1].startswith("more: --full ")


def test_full_prints_every_table():
    few, every = ffnprobe(*WORDS, "-k", "2"), ffnprobe(*WORDS, "-k", "2", "--full")
    assert few.exit_code == every.exit_code == 0, few.output + every.output
    assert every.stdout.startswith(few.stdout.partition("\npush: ")[0])
    for title in (
        "The evidence, every number", "What holds the answer back", "What it becomes without the first neurons",
        "What the model predicts next", "Where the MLP layers matter", "How it got there, through attention",
        "What makes up the answer's logit", "The prompts it was compared with", "How it was measured",
    ):  # fmt: skip
        assert f"\n{title}" in every.stdout
        assert f"\n{title}" not in few.stdout


def test_it_can_be_told_the_subject_or_to_compare_with_nothing():
    told = ffnprobe("explain", "In Paris the capital of Japan is", "--subject", "Japan", "-k", "2")
    assert told.exit_code == 0, told.output
    assert " at ␣Japan " in told.stdout
    wrong = ffnprobe(*WORDS, "--subject", "Tiger")
    assert wrong.exit_code == 1
    assert '"Tiger" is not in the prompt' in wrong.output
    alone = ffnprobe(*WORDS, "--contrast", "none", "-k", "2")
    assert "It was compared with nothing." in alone.stdout


@pytest.mark.parametrize("more", [(), ("--full",)])
def test_each_piece_s_own_numbers_are_printed_on_request(more):
    words = ("explain", JORDAN, " basketball golf", "-k", "2", "--no-effects", "--model", "pocket")
    found = ffnprobe(*words, *more)
    assert found.exit_code == 0, found.output
    assert ("The same neurons, piece by piece" in found.stdout) == bool(more)
    assert ("--full prints each one's" in found.stderr) == (not more)

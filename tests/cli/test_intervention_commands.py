"""`ffnprobe ablate` and `ffnprobe steer`: results on stdout, notes on stderr, errors in words."""

import json
import sys
from pathlib import Path

import pytest

import ffnprobe as fp
from ffnprobe.cli.main import main

PROMPT = "the cat sat on the basketball court"


@pytest.fixture
def ffnprobe(
    monkeypatch: pytest.MonkeyPatch, tiny_folder: Path, capsys: pytest.CaptureFixture[str]
):
    """Run a command on the tiny model; return its exit code, stdout and stderr."""

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(
            sys, "argv", ["ffnprobe", *words, "--model", str(tiny_folder), "--device", "cpu"]
        )
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return run


def test_ablate_tables_the_exact_effects(ffnprobe, tiny_trace: fp.Trace) -> None:
    code, out, err = ffnprobe("ablate", PROMPT, " basketball", "--format", "json", "--top", "3")
    assert code == 0
    found = json.loads(out)
    wanted = fp.ablate(tiny_trace, " basketball").top(3)
    assert [row["name"] for row in found["rows"]] == list(wanted["name"])
    assert found["rows"][0]["effect"] == pytest.approx(wanted.effect[0], abs=1e-4)
    assert found["provenance"]["settings"] == "replace=zero"
    assert "␣basketball: logit" in err


@pytest.mark.parametrize("method", ["exact", "gradient"])
def test_neurons_named_are_all_shown_though_fewer_than_ten(ffnprobe, method) -> None:
    words = ("--neuron", "L1N7", "--neuron", "L0N3", "--method", method, "--format", "json")
    code, out, _ = ffnprobe("ablate", PROMPT, " basketball", *words)
    assert code == 0
    assert {row["name"] for row in json.loads(out)["rows"]} == {"L1N7", "L0N3"}


def test_ablate_both_ways_and_where(ffnprobe, tiny_trace: fp.Trace) -> None:
    code, out, err = ffnprobe(
        "ablate", PROMPT, " basketball", "--method", "both", "--position", "2,-1", "--neuron", "L1",
        "--neuron", "L2N5-L2N9", "--format", "csv", "--no-log-probability",
    )  # fmt: skip
    assert code == 0
    header = next(line for line in out.splitlines() if not line.startswith("#"))
    columns = header.replace(chr(34), "").split(",")
    assert columns[:6] == ["name", "layer", "neuron", "activation", "effect", "estimate"]
    assert "positions 2 9 together" in out
    assert "Spearman correlation of estimates and effects: 0.9" in err
    code, out, _ = ffnprobe(
        "ablate", PROMPT, " basketball", "--method", "gradient", "--format", "md"
    )
    assert code == 0
    assert "| name | layer | neuron | activation | estimate |" in out


def test_ablate_map(ffnprobe) -> None:
    code, out, _ = ffnprobe("ablate", PROMPT, " basketball", "--map", "--format", "json")
    assert code == 0
    rows = json.loads(out)["rows"]
    assert len(rows) == 3 * 10
    assert set(rows[0]) == {"layer", "position", "token", "effect", "log_probability_effect"}


def test_ablate_says_how_an_answer_was_split(ffnprobe) -> None:
    code, _, err = ffnprobe("ablate", PROMPT, " basketball Paris", "--neuron", "L0N1", "--top", "1")
    assert code == 0
    assert '2 tokens: "␣basketball" "␣Paris"' in err


def test_steer_compares_before_and_after(ffnprobe, tiny: fp.Model) -> None:
    code, out, err = ffnprobe(
        "steer", PROMPT, "--set", "L1N17=4.0", "--scale", "L2=0", "--generate", "3", "--format", "json"
    )  # fmt: skip
    assert code == 0
    wanted = fp.steer(tiny, PROMPT, {"L1N17": 4.0}, scale={"L2": 0.0}, generate=3)
    found = json.loads(out)
    assert found["predictions"][0]["token"] == wanted.predictions(1).token[0]
    assert [row["text"] for row in found["texts"]] == ["before", "after"]
    assert found["texts"][1]["tokens"] == " ".join(tiny.vocab.show_all(wanted.continued_after))
    assert "L1N17=4, L2×0 at every position" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ablate", PROMPT, " basketball", "--replace", "mean"], "has no activation means"),
        (["ablate", PROMPT, " basketball", "--neuron", "L9N1"], "has layers L0–L2"),
        (["ablate", PROMPT, " basketball", "--position", "end"], '"end" is not a position'),
        (["ablate", PROMPT, " basketball", "--position", "77"], "position 77 is outside the prompt"),
        (["ablate", PROMPT, ""], '"" is no token'),
        (["steer", PROMPT], "no neuron is named to steer"),
        (["steer", PROMPT, "--set", "L1N17=many"], '"L1N17=many" does not set a neuron to a number'),
        (["steer", PROMPT, "--set", "L1N17=nan"], "L1N17: nan is no activation"),
        (["steer", PROMPT, "--set", "L1N17"], '"L1N17" does not set a neuron to a number'),
        (["steer", PROMPT, "--set", "L1N1=1", "--set", "L1N1=2"], "L1N1 is given twice"),
        (["steer", PROMPT, "--set", "L1N1=1", "--generate", "99"], "has 29 positions"),
    ],
)  # fmt: skip
def test_errors_are_stated(ffnprobe, words: list[str], message: str) -> None:
    code, out, err = ffnprobe(*words)
    assert code == 1
    assert out == ""
    assert message in err
    assert "Traceback" not in err


def test_interrupted_sweep_writes_nothing(
    ffnprobe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ffnprobe.interventions import ablation

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ablation, "sweep_neurons", interrupt)
    target = tmp_path / "effects.csv"
    code, _, err = ffnprobe("ablate", PROMPT, " basketball", "--out", str(target))
    assert code == 130
    assert "interrupted: nothing was written." in err
    assert list(tmp_path.iterdir()) == []

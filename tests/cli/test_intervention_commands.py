"""`ffnprobe ablate` and `ffnprobe steer`: results on stdout, notes on stderr, errors in words."""

import json
import sys
from pathlib import Path

import pytest

import ffnprobe as fp
from ffnprobe.cli.main import main
from tests.cli.runner import ffnprobe as call
from tests.cli.runner import refused

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
    assert found["provenance"]["settings"] == {"replace": "zero"}
    assert "␣basketball: logit" in err


@pytest.mark.parametrize("verb", ["ablate", "estimate"])
def test_neurons_named_are_all_shown_though_fewer_than_ten(ffnprobe, verb) -> None:
    words = ("--neuron", "L1N7", "--neuron", "L0N3", "--format", "json")
    code, out, _ = ffnprobe(verb, PROMPT, " basketball", *words)
    assert code == 0
    assert {row["name"] for row in json.loads(out)["rows"]} == {"L1N7", "L0N3"}


def test_ablate_both_ways_and_where(ffnprobe, tiny_trace: fp.Trace) -> None:
    code, out, err = ffnprobe(
        "ablate", PROMPT, " basketball", "--estimates", "--position", "2,-1", "--neuron", "L1",
        "--neuron", "L2N5-L2N9", "--format", "csv", "--no-log-probability",
    )  # fmt: skip
    assert code == 0
    header = next(line for line in out.splitlines() if not line.startswith("#"))
    columns = header.replace(chr(34), "").split(",")
    assert columns[:6] == ["name", "layer", "neuron", "activation", "effect", "estimate"]
    assert '""settings"": {""replace"": ""zero"", ""positions"": [2, 9]}' in out
    assert "Spearman correlation of estimates and effects: 0.9" in err
    code, out, _ = ffnprobe("estimate", PROMPT, " basketball", "--format", "md")
    assert code == 0
    assert "| name | layer | neuron | activation | estimate |" in out


def test_ablate_map(ffnprobe) -> None:
    code, out, _ = ffnprobe("ablate-layers", PROMPT, " basketball", "--format", "json")
    assert code == 0
    rows = json.loads(out)["rows"]
    assert len(rows) == 3 * 10
    assert set(rows[0]) == {"layer", "position", "token", "effect", "log_probability_effect"}


def test_ablate_says_how_an_answer_was_split(ffnprobe) -> None:
    code, _, err = ffnprobe("ablate", PROMPT, " basketball Paris", "--neuron", "L0N1", "--top", "1")
    assert code == 0
    assert '2 tokens: "␣basketball" "␣Paris"' in err


def test_steer_compares_before_and_after(ffnprobe, tiny: fp.Model) -> None:
    code, out, _ = ffnprobe(
        "steer", PROMPT, "--set", "L1N17=4.0", "--scale", "L2=0", "--generate", "3", "--format", "json"
    )  # fmt: skip
    assert code == 0
    wanted = fp.steer(tiny, PROMPT, {"L1N17": 4.0}, scale={"L2": 0.0}, generate=3)
    found = json.loads(out)
    assert found["predictions"][0]["token"] == wanted.predictions(1).token[0]
    assert [row["text"] for row in found["texts"]] == ["before", "after"]
    assert found["texts"][1]["tokens"] == " ".join(tiny.vocab.show_all(wanted.continued_after))
    shown = ffnprobe("steer", PROMPT, "--set", "L1N17=4.0", "--scale", "L2=0")[1]
    assert "set L1N17=4, scale L2=0, positions all" in shown


def test_a_sampled_text_says_how_it_was_sampled(ffnprobe, tiny: fp.Model) -> None:
    words = ("steer", PROMPT, "--set", "L1N17=4.0", "--format", "json", "--temperature", "2", "--seed", "3")  # fmt: skip
    code, out, _ = ffnprobe(*words, "--generate", "2")
    assert code == 0
    settings = json.loads(out)["provenance"]["settings"]
    assert (settings["temperature"], settings["seed"]) == (2.0, 3)
    assert "seed" not in json.loads(ffnprobe(*words)[1])["provenance"]["settings"]


def test_the_convention_and_the_replacement_are_chosen() -> None:
    """Logits move with the convention by one number at a position; effects with both options."""
    prompt, pocket = "Michael Jordan plays the sport of", fp.load("pocket", device="cpu")
    trace = fp.run(pocket, prompt)
    for convention in ("centred", "folded"):
        for replace in ("mean", "zero"):
            found = json.loads(
                call("ablate", prompt, " basketball", "--neuron", "L0N378", "--neuron", "L4N451",
                     "--convention", convention, "--replace", replace, "--format", "json").stdout
            )  # fmt: skip
            wanted = fp.ablate(
                trace, " basketball", neurons=["L0N378", "L4N451"], convention=convention, replace=replace
            )  # fmt: skip
            assert found["provenance"]["convention"] == convention
            assert found["provenance"]["settings"] == {"replace": replace}
            assert [row["effect"] for row in found["rows"]] == pytest.approx(
                wanted.top(2).effect.tolist(), abs=1e-5
            )
            told = call("explain", prompt, " basketball", "-k", "2", "--format", "json",
                        "--convention", convention, "--replace", replace)  # fmt: skip
            known = json.loads(told.stdout)["provenance"]
            assert (known["convention"], known["settings"]["replace"]) == (convention, replace)
        pushes = json.loads(
            call("attribute", prompt, " basketball", "--convention", convention, "--format", "json").stdout
        )  # fmt: skip
        logit = fp.attribute(trace, " basketball", convention=convention).logit
        assert pushes["provenance"]["convention"] == convention
        assert sum(row["push"] for row in pushes["parts"]) == pytest.approx(logit, abs=1e-3)


@pytest.mark.parametrize("command", ["ablate", "explain", "attribute"])
def test_the_defaults_are_centred_and_the_means_where_they_are_known(command: str) -> None:
    found = call(command, "Michael Jordan plays the sport of", " basketball", "--format", "json")
    known = json.loads(found.stdout)["provenance"]
    assert known["convention"] == "centred"
    if command != "attribute":
        assert known["settings"]["replace"] == ("mean" if command == "ablate" else "contrast mean")


def test_an_unknown_convention_or_replacement_is_wrong_usage() -> None:
    for words in (("--convention", "raw"), ("--replace", "nothing")):
        assert call("ablate", PROMPT, " the", *words).exit_code == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ablate", PROMPT, " basketball", "--replace", "mean"], "has no activation means"),
        (["ablate", PROMPT, " basketball", "--neuron", "L9N1"], "has layers L0–L2"),
        (["ablate", PROMPT, " basketball", "--position", "end"], '"end" is not a position'),
        (["ablate", PROMPT, " basketball", "--position", "77"], "position 77 is outside the prompt"),
        (["ablate", PROMPT, ""], '"" is not a token'),
        (["steer", PROMPT], "no neuron is named to steer"),
        (["steer", PROMPT, "--set", "L1N17=many"], '"L1N17=many" does not set a neuron to a number'),
        (["steer", PROMPT, "--set", "L1N17=nan"], "L1N17: nan is not an activation"),
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


def test_contrast_prompts_are_typed_or_taken_from_facts(pocket, jordan, ffnprobe):
    golf, as_json = "Tiger Woods plays the sport of", ("--format", "json")
    words = ("ablate", jordan.prompt, " basketball", "--contrast")
    found = json.loads(call(*words, golf, "--neuron", "L0N1-L0N9", *as_json).stdout)
    assert found["provenance"]["settings"]["contrast"] == [golf]
    expected = fp.ablate(jordan, " basketball", contrast=golf, neurons=["L0N1-L0N9"]).top(1)
    assert found["rows"][0]["effect"] == pytest.approx(expected.effect.item(), abs=1e-4)
    found = json.loads(
        call("attribute", jordan.prompt, "--contrast-from", "pocket", *as_json).stdout
    )
    assert len(found["provenance"]["settings"]["contrast"]) == 20
    assert "difference" in found["rows"][0]
    assert "no contrast prompt differs from the prompt" in refused(*words, jordan.prompt)
    error = refused(*words, golf, "--replace", "zero")
    assert "a removed neuron is set to its mean over them" in error
    code, _, error = ffnprobe("ablate", PROMPT, " the", "--contrast-from", "pocket")
    assert code
    assert "the table pocket holds what pocket was taught" in error

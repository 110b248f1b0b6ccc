"""`read`, `search` and `survey` as a shell sees them."""

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import ffnprobe as fp
from ffnprobe.cli.main import app
from tests.cli.runner import ffnprobe, refused


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def model(tiny_folder):
    return ("--model", tiny_folder, "--device", "cpu")


def test_read_prints_a_card(model, tiny):
    result = call("read", "L1N2", "-k", 4, *model)
    assert result.exit_code == 0
    assert result.stdout == fp.read(tiny, "L1N2").card(4) + "\n"
    assert result.stderr.startswith(f"{tiny.name} (folder ")


def test_read_as_json_names_the_neuron_first(model, tiny):
    body = json.loads(call("read", "L1N2", "L0N5-7", "-k", 3, "--format", "json", *model).stdout)
    assert list(body) == ["provenance", "result", "rows", "tokens"]
    assert [row["name"] for row in body["rows"]] == ["L1N2", "L0N5", "L0N6", "L0N7"]
    assert list(body["rows"][0])[:3] == ["name", "layer", "neuron"]
    promoted = fp.read(tiny, "L1N2").answer.promotes(3)
    assert body["rows"][0]["promotes"] == " ".join(promoted.token)
    values = [t["value"] for t in body["tokens"] if (t["name"], t["list"]) == ("L1N2", "promotes")]
    assert values == pytest.approx(promoted.value.tolist(), rel=1e-5)
    assert body["provenance"]["convention"] == "centred"
    raw = call("read", "L1N2", "--convention", "raw", "--format", "json", *model).stdout
    assert json.loads(raw)["provenance"]["convention"] == "raw"


def test_read_several_prints_a_table(model):
    shown = call("read", "L1N2-3", "--quiet", *model)
    assert shown.stderr == ""
    assert "L1N3" in shown.stdout
    assert "null space" in shown.stdout


def test_related_neurons_of_one(model):
    body = json.loads(call("related", "L1N2", "-k", 2, "--format", "json", *model).stdout)
    assert [len(body[table]) for table in ("feeds", "fed_by", "similar")] == [2, 2, 2]
    result = call("related", "L1N2-3", *model)
    assert result.exit_code == 1
    assert "error: " in result.stderr
    assert "L1N2-3" in result.stderr


def test_search(model, tiny):
    words = (" basketball", "--top", 3, "--layers", "1-2", "--format", "json")
    body = json.loads(call("search", *words, *model).stdout)
    expected = fp.search(tiny, " basketball", top=3, layers="1-2")
    assert [row["name"] for row in body["rows"]] == expected.table.name.tolist()
    assert list(body["rows"][0]) == ["name", "layer", "neuron", "z", "dot", "cosine", "promotes"]
    away = call("search", *words, "--away", "--rank", "dot", "--by", "question", *model).stdout
    dots = [row["dot"] for row in json.loads(away)["rows"]]
    assert dots == sorted(dots)
    assert dots[0] < 0


@pytest.mark.parametrize("suffix", [".csv", ".json", ".parquet", ".md"])
def test_survey_goes_to_every_format_and_comes_back(model, tiny, tmp_path, suffix):
    path = tmp_path / f"neurons{suffix}"
    result = call("survey", "--layers", "0-1", "-k", 3, "--out", path, *model)
    assert (result.exit_code, result.stdout) == (0, "")
    expected = fp.survey(tiny, layers="0-1", top=3).table
    if suffix == ".md":
        assert len([n for n in path.read_text().splitlines() if n.startswith("| L")]) == 104
        return
    back = fp.open_result(path).table
    assert back.attrs["provenance"] == expected.attrs["provenance"]
    assert back.question_tokens.tolist() == expected.question_tokens.tolist()
    assert back.promotes.str.split(" ").tolist() == expected.promotes.str.split(" ").tolist()
    assert back.null_space.tolist() == pytest.approx(expected.null_space.tolist(), rel=1e-5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("read", "L7N0"), "has layers L0–L2."),
        (("read", "L0N52"), "has neurons L0N0–L0N51."),
        (("read", "L0N9-4"), 'error: "L0N9-4" is empty: it ends before it begins.'),
        (("read", "X3"), 'error: "X3" is not the name of a neuron.\n  try: a neuron is "L3N12"'),
        (("read", "L0N1", "-k", "302"), "error: top = 302: there are 301 tokens.\n  try: 1 to 301"),
        (("search", " basket ball"), 'a search needs one.\n  try: " basketball"'),
        (("search", " basketball", "--top", "157"), "error: top = 157: there are 156 neurons."),
        (("survey", "--layers", "2-1"), 'error: "2-1" is empty: it ends before it begins.'),
        (("survey", "-k", "0"), "error: top = 0: there are 301 tokens."),
        (
            ("survey", "--out", "neurons.xls"),
            'error: ".xls" is not a format that results are written in',
        ),
    ],
)
def test_mistakes_are_stated(model, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    result = call(*words, *model)
    assert result.exit_code == 1
    assert message in result.stderr
    assert len(result.stderr.split("error: ")[1].splitlines()) <= 3
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_unknown_convention_is_wrong_usage(model):
    result = call("read", "L0N1", "--convention", "centered", *model)
    assert result.exit_code == 2
    assert "'centered' is not one of 'centred', 'gain', 'raw', 'normed'" in " ".join(
        result.stderr.replace("│", " ").split()
    )


INTERRUPTED = """
import signal, sys
from ffnprobe.reading import surveys
whole = surveys.pick_directions
def interrupt_second(model, layer, *more):
    if layer == 1:
        signal.raise_signal(signal.SIGINT)
    return whole(model, layer, *more)
surveys.pick_directions = interrupt_second
from ffnprobe.cli.main import main
main()
"""


def test_an_interrupted_survey_leaves_no_file(tiny_folder, tmp_path):
    older = tmp_path / "neurons.csv"
    older.write_text("older\n")
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, "survey", "--model", tiny_folder, "--out", older],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    assert "interrupted: nothing was written." in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["neurons.csv"]
    assert older.read_text() == "older\n"


def test_reading_one_neuron_loads_no_library_it_does_not_need(tiny_folder):
    code = (
        "import sys; from ffnprobe.cli.main import app\n"
        "app(sys.argv[1:], standalone_mode=False)\n"
        "print({'transformers', 'transformer_lens', 'pandas', 'plotly'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "read", "L0N1", "--model", tiny_folder],
        capture_output=True, text=True, check=True, env=os.environ,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "set()"


def test_a_search_can_be_kept_to_one_kind(pocket):
    kinds = set(fp.survey(pocket).table.kind)
    (kind, *_) = sorted(kinds - {"unlabelled"})
    (other, *_) = sorted({"prediction", "suppression", "entropy", "partition"} - kinds)
    found = json.loads(ffnprobe("search", " basketball", "--kind", kind, "--format", "json", "--top", "4").stdout)  # fmt: skip
    names = [row["name"] for row in found["rows"]]
    kinds = json.loads(ffnprobe("read", *names, "--format", "json").stdout)["rows"]
    assert {row["kind"] for row in kinds} == {kind}
    assert f'is of the kind "{other}"' in refused("search", " basketball", "--kind", other)

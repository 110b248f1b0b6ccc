"""`attribute`, `stages` and `lens`, by what they print."""

import json

import pandas as pd
import pytest
from typer.testing import CliRunner

import ffnprobe as fp
from ffnprobe.cli.main import app
from tests.cli.runner import ffnprobe
from tests.conftest import JORDAN

TEXT = "the cat sat on the basketball court"


@pytest.fixture
def invoke(tiny_folder, monkeypatch):
    monkeypatch.setenv("FFNPROBE_MODEL", str(tiny_folder))
    return lambda *words, **more: CliRunner().invoke(app, [*words, "--device", "cpu"], **more)


def test_attribute_prints_the_top_neurons(invoke, tiny_trace):
    done = invoke("attribute", TEXT, " basketball", "--top", "3")
    assert done.exit_code == 0
    expected = fp.attribute(tiny_trace, " basketball").top(3)
    lines = [line for line in done.stdout.splitlines() if line.startswith("L")]
    assert [line.split()[0] for line in lines] == expected.name.tolist()
    assert "␣cou rt: -1.30 logits; " in done.stdout
    assert "the parts add up to the model's logit within" in done.stderr


def test_attribute_as_json_has_every_table(invoke, tiny_trace):
    done = invoke("attribute", TEXT, " basketball", "--versus", " the", "--position", "3",
                  "--format", "json")  # fmt: skip
    found = json.loads(done.stdout)
    pushes = fp.attribute(tiny_trace, " basketball", versus=" the", position=3)
    assert list(found) == ["provenance", "result", "rows", "layers", "parts"]
    assert found["provenance"]["convention"] == "centred"
    assert (found["provenance"]["versus"], found["provenance"]["position"]) == ("␣the", 3)
    assert list(found["rows"][0])[:5] == ["name", "layer", "neuron", "activation", "push"]
    assert [row["name"] for row in found["rows"]] == pushes.top(10).name.tolist()
    assert sum(row["push"] for row in found["parts"]) == pytest.approx(pushes.logit, abs=1e-3)
    assert found["parts"][0]["layer"] is None
    assert len(found["layers"]) == 3


def test_paths_print_parts_and_positions(invoke, tiny_trace):
    done = invoke("paths", TEXT, " basketball", "--top", "4", "--depth", "2")
    assert done.exit_code == 0
    expected = fp.paths(tiny_trace, " basketball", depth=2)
    printed = [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
    assert expected.top(4).name.tolist() == printed[3:7]
    assert "each head's shares add up to its push within" in done.stderr


def test_paths_as_json_have_every_table(invoke, tiny_trace):
    done = invoke("paths", TEXT, " basketball", "--versus", " the", "--position", "3",
                  "--format", "json")  # fmt: skip
    found = json.loads(done.stdout)
    paths = fp.paths(tiny_trace, " basketball", versus=" the", position=3)
    assert list(found) == ["provenance", "result", "rows", "neurons", "heads", "positions", "parts"]
    assert found["provenance"]["settings"] == {"depth": tiny_trace.model.config.layers}
    assert sum(row["push"] for row in found["parts"]) == pytest.approx(paths.push, abs=1e-3)
    assert len(found["positions"]) == 4
    assert [row["name"] for row in found["neurons"]] == paths.by_neuron(10).name.tolist()


def test_paths_of_an_answer_of_several_tokens_have_each_pieces_own(invoke, tiny, tiny_trace):
    done = invoke("paths", TEXT, " the cat", "--top", "2", "--format", "json")
    found, paths = json.loads(done.stdout), fp.paths(tiny_trace, " the cat")
    pieces = tiny.vocab.show_all(tiny.vocab.pieces(" the cat"))
    assert len(pieces) > 1
    assert found["provenance"]["answer"] == " ".join(pieces)
    assert [row["piece"] for row in found["pieces"]] == [piece for piece in pieces for _ in "ab"]
    assert sum(row["push"] for row in found["parts"]) == pytest.approx(paths.push, abs=1e-3)
    assert f"{paths.push:+.3f} of it through heads" in done.stderr


def test_attribute_without_an_answer_takes_the_prediction_and_says_so(invoke, tiny_trace):
    done = invoke("attribute", TEXT, "--format", "json")
    token = tiny_trace.predictions(1).token.item()
    assert json.loads(done.stdout)["provenance"]["answer"] == token
    assert f"no answer given: taking the prediction, {token}" in done.stderr
    assert ", rank 1;" in done.stderr


def test_attribute_says_how_an_answer_is_split(invoke, tiny):
    done = invoke("attribute", TEXT, "lebron", "--format", "json")
    pieces = tiny.vocab.show_all(tiny.vocab.ids("lebron"))
    assert len(pieces) > 1
    assert f'"lebron" is {len(pieces)} tokens:' in done.stderr
    assert "together: log-probability -" in done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert list(dict.fromkeys(row["piece"] for row in rows)) == list(dict.fromkeys(pieces))
    spaced = invoke("attribute", TEXT, "basketball")
    assert 'with a leading space, " basketball" is one token' in spaced.stderr


def test_bos_is_noted_and_can_be_left_out(invoke):
    assert "position 0 is BOS" in invoke("attribute", TEXT, " the", "--position", "0").stderr
    done = invoke("attribute", TEXT, " the", "--position", "0", "--no-bos", "--format", "json")
    assert "is BOS" not in done.stderr
    assert "is BOS" not in invoke("attribute", TEXT, " the", "--position", "1").stderr
    assert "position 0 is BOS" in invoke("attribute", TEXT, " the", "--position", "-10").stderr
    assert json.loads(done.stdout)["provenance"]["tokens"][0] != "<|endoftext|>"


def test_attribute_reads_standard_input_and_writes_files(invoke, tmp_path):
    target = tmp_path / "pushes.csv"
    done = invoke("attribute", "-", " the", "--out", str(target), "-q", input=TEXT + "\n")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")
    table = pd.read_csv(target)
    assert list(table.columns[:3]) == ["name", "layer", "neuron"]
    assert json.loads(table.provenance[0])["provenance"]["prompt"] == TEXT


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["attribute", TEXT, ""], 'error: "" is not a token; an answer needs one.'),
        (["attribute", "", " the"], "error: the prompt is empty."),
        (["attribute", TEXT, " the", "--versus", " the"], "nothing to compare"),
        (["attribute", TEXT, " the", "--versus", " lebron"], "--versus needs one."),
        (["attribute", TEXT, " the", "--position", "99"], "position 99 is outside the prompt"),
        (["attribute", TEXT, " the", "--top", "0"], "top = 0: there are 156 neurons"),
        (["stages", TEXT, "--layer", "3"], "has layers L0–L2."),
    ],
)
def test_a_mistake_ends_in_words_and_status_1(invoke, words, said):
    done = invoke(*words)
    assert done.exit_code == 1
    assert said in done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) <= 4


def test_stages_has_a_row_a_token(invoke, tiny_trace):
    done = invoke("stages", TEXT, "--layer", "1", "--format", "json")
    rows = json.loads(done.stdout)["rows"]
    assert [row["token"] for row in rows] == list(tiny_trace.tokens)
    assert rows[2]["strongest"] == fp.stages(tiny_trace, 1).table.strongest[2]


def test_the_lens_ends_in_the_prediction(invoke, tiny_trace):
    found = json.loads(invoke("lens", TEXT, "--format", "json").stdout)
    assert found["rows"][-1]["token"] == tiny_trace.predictions(1).token.item()
    assert found["rows"][0]["layer"] is None
    plain = invoke("lens", TEXT).stdout
    assert "embedding" in plain
    assert "NA" not in plain


def test_paths_and_explain_follow_as_many_heads_as_there_are():
    found, told = (
        json.loads(ffnprobe(verb, JORDAN, " basketball", "--top", "3", "--format", "json").stdout)
        for verb in ("paths", "explain")
    )
    there = {row["name"]: row["push_through_attention"] for row in found["rows"]}
    assert found["provenance"]["settings"] == {"depth": 7}
    for row in told["neurons"][:2]:
        assert row["push_through_attention"] == pytest.approx(there[row["name"]], abs=1e-3)

"""The script that compares two models: shuffled neurons are found, and another model can be named."""

import runpy
from pathlib import Path

import pytest

import ffnprobe as fp
from ffnprobe.errors import DataRefused

SCRIPT = Path(__file__).parents[2] / "analyses" / "universal_neurons.py"


@pytest.fixture(scope="module")
def script() -> dict:
    return runpy.run_path(str(SCRIPT))


def test_every_shuffled_neuron_is_found(script, pocket):
    shuffled = script["shuffle"](pocket, 3)
    assert not shuffled.answers.equal(pocket.answers)
    prompt = "Michael Jordan plays the sport of"
    said = [fp.run(each, prompt).logits for each in (pocket, shuffled)]
    assert (said[0] - said[1]).abs().max() < 1e-3  # the same model in another order
    found = fp.match(pocket, shuffled).neurons
    assert found.is_twin.all()
    for row in found.sample(20, random_state=0).itertuples():
        twin = fp.NeuronId.parse(row.twin)
        assert shuffled.answers[twin.layer, twin.neuron].equal(
            pocket.answers[row.layer, row.neuron]
        )


def test_it_prints_tables_and_writes_figures(script, capsys, tmp_path):
    page = tmp_path / "page.html"
    script["main"](["--html", str(page)])
    printed = capsys.readouterr().out
    assert "have a twin in pocket-shuffled" in printed
    assert "by layer" in printed
    assert page.read_text(encoding="utf-8").count("<figure>") == 2


def test_another_vocabulary_is_refused(script, tiny_folder):
    with pytest.raises(DataRefused, match="different vocabularies"):
        script["main"]([str(tiny_folder)])

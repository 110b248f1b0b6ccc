"""Related neurons against the whole products in float64, and a planted pair."""

import pytest
import torch

import ffnprobe as fp
from ffnprobe.errors import NameNotUnderstood, OptionRefused
from ffnprobe.reading.searches import find_related
from tests.builders import TINY, random_weights, write_model


def test_feeds_and_fed_by_are_products_with_folded_questions(tiny):
    related = fp.read(tiny, "L1N7").related(52)
    q, w = tiny.questions.double(), tiny.answers.double()
    feeds, fed_by = q[2] @ w[1, 7], w[0] @ q[1, 7]
    for table, layer, values in ((related.feeds, 2, feeds), (related.fed_by, 0, fed_by)):
        assert set(table.layer) == {layer}
        expected = values[table.neuron.tolist()].tolist()
        assert table["dot"].tolist() == pytest.approx(expected, rel=1e-4, abs=1e-5)
        assert table["dot"].abs().is_monotonic_decreasing
    assert related.provenance.fingerprint == tiny.fingerprint
    assert related.provenance.settings == {"related_to": "L1N7", "k": 52}
    assert repr(related) == "Related(neurons related to L1N7)"
    assert related.table is related.feeds


def test_similar_answers_are_by_cosine_and_leave_out_itself(tiny):
    similar = find_related(tiny, "L1N7", top=155).similar
    assert "L1N7" not in similar.name.tolist()
    assert similar.cosine.is_monotonic_decreasing
    expected = torch.cosine_similarity(tiny.answers, tiny.answers[1, 7], dim=-1)
    found = expected[similar.layer.tolist(), similar.neuron.tolist()].tolist()
    assert similar.cosine.tolist() == pytest.approx(found, rel=1e-4, abs=1e-6)


def test_a_planted_pair_is_found_from_both_sides(tmp_path):
    weights = random_weights(TINY)
    answer = weights["h.0.mlp.c_proj.weight"][5]
    # Through the gain: what the later neuron compares with is γ ⊙ W_in, and that is the answer.
    weights["h.2.mlp.c_fc.weight"][:, 9] = -8 * answer / weights["h.2.ln_2.weight"]
    model = fp.load(write_model(tmp_path / "pair", TINY, weights), device="cpu")
    feeds, fed_by = find_related(model, "L0N5").feeds, find_related(model, "L2N9").fed_by
    assert feeds.name[0] == "L2N9"
    assert feeds["dot"][0] < 0
    assert fed_by.name[0] == "L0N5"


def test_first_and_last_layer_have_one_side(tiny):
    assert len(find_related(tiny, "L0N0").fed_by) == 0
    last = find_related(tiny, "L2N0")
    assert len(last.feeds) == 0
    assert "Its question is fed by" in str(last)
    assert "feeds" not in str(last)
    assert last._repr_html_().count("<table") == 2


def test_what_has_no_relations_is_refused(tiny):
    with pytest.raises(NameNotUnderstood, match=r"L9N0: .* has layers L0–L2\."):
        find_related(tiny, "L9N0")
    with pytest.raises(OptionRefused, match=r"top = 156: there are 155 other neurons\."):
        find_related(tiny, "L0N0", top=156)

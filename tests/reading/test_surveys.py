"""The survey: one tidy row per neuron, whatever the size of the blocks it was made in."""

import pytest

import ffnprobe as fp
from ffnprobe.errors import NameNotUnderstood, OptionRefused

COLUMNS = [
    "name", "layer", "neuron", "kind", "question_tokens", "promotes", "suppresses",
    "question_norm", "question_bias", "answer_norm", "cosine",
    "vocab_mean", "vocab_variance", "vocab_skew", "vocab_kurtosis", "null_space",
]  # fmt: skip


def test_one_row_for_every_neuron(tiny):
    neurons = fp.survey(tiny, k=4)
    assert list(neurons.columns) == COLUMNS
    assert neurons.name.tolist() == [f"L{n}N{m}" for n in range(3) for m in range(52)]
    assert (neurons.promotes.str.split(" ").str.len() == 4).all()
    provenance = neurons.attrs["provenance"]
    assert provenance["model"] == tiny.name
    assert provenance["fingerprint"] == tiny.fingerprint
    assert provenance["convention"] == "centred"
    assert "layers 0,1,2" in provenance["settings"]


def test_blocks_of_any_size_give_the_same_tokens(tiny, monkeypatch):
    whole = fp.survey(tiny)
    monkeypatch.setattr("ffnprobe.reading.projection.ROWS_AT_ONCE", 5)
    monkeypatch.setattr("ffnprobe.reading.moments.ROWS_IN_CACHE", 3)
    parts = fp.survey(tiny)
    assert parts[COLUMNS[:7]].equals(whole[COLUMNS[:7]])
    assert (parts[COLUMNS[7:]] - whole[COLUMNS[7:]]).abs().to_numpy().max() < 1e-4


def test_a_survey_of_some_layers_is_part_of_the_whole(tiny):
    whole = fp.survey(tiny)
    some = fp.survey(tiny, layers=[2, 0])
    assert some.equals(whole[whole.layer != 1].reset_index(drop=True))
    assert fp.survey(tiny, layers="0,L2").equals(some)


def test_progress_counts_the_neurons(tiny):
    seen = []
    fp.survey(tiny, layers="1-2", progress=lambda *counts: seen.append(counts))
    assert seen == [(52, 104), (104, 104)]


def test_layers_and_k_that_are_wrong(tiny):
    with pytest.raises(NameNotUnderstood, match=r"L3: .* has layers L0–L2\."):
        fp.survey(tiny, layers="1-3")
    with pytest.raises(NameNotUnderstood, match='"2-1" is empty'):
        fp.survey(tiny, layers="2-1")
    with pytest.raises(NameNotUnderstood, match=r"L-1: .* has layers L0–L2\."):
        fp.survey(tiny, layers=[-1])
    with pytest.raises(OptionRefused, match="no layer is named"):
        fp.survey(tiny, layers=[])
    with pytest.raises(OptionRefused, match=r"k = 302: there are 301 tokens\."):
        fp.survey(tiny, k=302)


def test_shown_tokens_hold_no_space(pocket, tiny):
    for model in (pocket, tiny):
        assert not any(" " in token for token in model.vocab.shown)

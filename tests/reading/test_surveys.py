"""The survey: one tidy row per neuron, whatever the size of the blocks it was made in."""

import pytest

import ffnprobe as fp
from ffnprobe.errors import NameNotUnderstood, OptionRefused

COLUMNS = [
    "name", "layer", "neuron", "kind", "question_tokens", "promotes", "suppresses",
    "question_norm", "question_bias", "answer_norm", "reads_writes", "role",
    "vocab_mean", "vocab_variance", "vocab_skew", "vocab_kurtosis", "null_space",
]  # fmt: skip


def test_one_row_for_every_neuron(tiny):
    found = fp.survey(tiny, top=4)
    neurons = found.table
    assert len(found) == len(list(found)) == 3 * 52
    assert list(neurons.columns) == COLUMNS
    assert neurons.name.tolist() == [f"L{n}N{m}" for n in range(3) for m in range(52)]
    assert (neurons.promotes.str.split(" ").str.len() == 4).all()
    known = found.provenance
    assert (known.model, known.fingerprint) == (tiny.name, tiny.fingerprint)
    assert known.convention == "centred"
    assert known.settings["layers"] == [0, 1, 2]
    assert known.settings["thresholds"]["kurtosis"] == 10
    assert neurons.attrs["provenance"] == known.as_dict()


def test_blocks_of_any_size_give_the_same_tokens(tiny, monkeypatch):
    whole = fp.survey(tiny).table
    monkeypatch.setattr("ffnprobe.reading.projection.ROWS_AT_ONCE", 5)
    monkeypatch.setattr("ffnprobe.reading.measures.ROWS_IN_CACHE", 3)
    parts = fp.survey(tiny).table
    numbers = [name for name in COLUMNS[7:] if name != "role"]
    words = [name for name in COLUMNS if name not in numbers]
    assert parts[words].equals(whole[words])
    assert (parts[numbers] - whole[numbers]).abs().to_numpy().max() < 1e-4


def test_a_survey_of_some_layers_is_part_of_the_whole(tiny):
    whole = fp.survey(tiny).table
    some = fp.survey(tiny, layers=[2, 0]).table
    assert some.equals(whole[whole.layer != 1].reset_index(drop=True))
    assert fp.survey(tiny, layers="0,L2").table.equals(some)


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
    with pytest.raises(OptionRefused, match=r"top = 302: there are 301 tokens\."):
        fp.survey(tiny, top=302)


def test_shown_tokens_hold_no_space(pocket, tiny):
    for model in (pocket, tiny):
        assert not any(" " in token for token in model.vocab.shown)


def test_the_top_is_by_a_column_and_keeps_the_provenance(tiny):
    neurons = fp.survey(tiny)
    assert neurons.title == f"156 neurons of {tiny.name}"
    assert neurons.layers == [0, 1, 2]
    by_norm = neurons.top(4, by="answer_norm")
    order = tiny.answers.norm(dim=-1).flatten().argsort(descending=True)[:4]
    assert by_norm.name.tolist() == [f"L{n // 52}N{n % 52}" for n in order.tolist()]
    assert neurons.top(156).vocab_kurtosis.is_monotonic_decreasing
    assert by_norm.attrs["provenance"] == neurons.provenance.as_dict()
    with pytest.raises(OptionRefused, match='a survey has no numbers "kind"') as caught:
        neurons.top(by="kind")
    assert "vocab_skew" in caught.value.remedy
    with pytest.raises(OptionRefused, match=r"top = 157: there are 156 neurons surveyed\."):
        neurons.top(157)


def test_a_kind_names_its_neurons_or_says_which_kinds_there_are(pocket, tiny):
    neurons = fp.survey(pocket)
    kinds = {kind: neurons.of_kind(kind) for kind in sorted(set(neurons.table.kind))}
    assert sum(map(len, kinds.values())) == pocket.config.neurons
    kind = next(kind for kind in kinds if kind != "unlabelled")
    assert all(fp.read(pocket, name).kind == kind for name in kinds[kind])
    with pytest.raises(OptionRefused, match='no neuron surveyed is of the kind "prime"') as caught:
        neurons.of_kind("prime")
    assert caught.value.remedy == ", ".join(kinds)


def test_a_survey_is_its_table_and_its_provenance(tiny):
    first = fp.survey(tiny, layers="1")
    again = fp.Survey(first.table, first.provenance)
    assert repr(again) == repr(first)
    assert list(again.tables()) == ["neurons"]
    assert "L1N0" in again._repr_html_()


def test_workers_and_an_address_need_a_cluster(tiny):
    with pytest.raises(OptionRefused, match="workers and an address belong to a Ray cluster"):
        fp.survey(tiny, workers=2)
    with pytest.raises(OptionRefused, match="engine = 'dask': it must be local or ray"):
        fp.survey(tiny, engine="dask")
    with pytest.raises(OptionRefused, match="workers = 0: it must be at least 1"):
        fp.survey(tiny, engine="ray", workers=0)

"""Labels of the planted model: each neuron gets what was planted, and the scores are what they say."""

import numpy as np
import pytest
import torch

import ffnprobe as fp
from ffnprobe.corpora.passages import ScanSettings
from ffnprobe.errors import DataRefused, OptionRefused
from ffnprobe.labels import stored_labels as saved
from ffnprobe.labels.splits import split_texts
from ffnprobe.models.forward import capture
from tests.labels.conftest import (
    FIRST,
    NEURONS,
    POSITION,
    PROMOTED,
    SECOND,
    TARGET,
    VOCAB,
    write_texts,
)


def row(labels, kind):
    return labels.table.iloc[NEURONS[kind]]


@pytest.mark.parametrize(
    ("kind", "opens", "rule_kind"),
    [
        ("token", f'"{TARGET}"', "token"),
        ("bigram", f'after "{FIRST} {SECOND}"', "pair"),
        ("position", f"position {POSITION - 1}", "position"),
        ("number", "numbers", "class"),
        ("eraser", '"rust"', "token"),
    ],
)
def test_planted_neurons_get_their_label(labels, kind, opens, rule_kind):
    found = row(labels, kind)
    assert found.opens == opens
    assert found.rule_kind == rule_kind
    assert found.label.startswith(opens)
    assert found.f1 > 0.8
    assert found.recall == 1


def test_what_cannot_be_explained_is_not(labels):
    found = row(labels, "random")
    assert found.label == "unexplained"
    assert found.f1 < 0.1
    assert row(labels, "dead").label == "dead"
    assert row(labels, "dead").f1 == 0


def test_the_controls_score_nothing_and_rules_beyond_the_token_beat_the_lookup(labels):
    assert labels.table.shuffled_f1.max() < 0.1
    for kind in ("bigram", "position"):
        assert row(labels, kind).f1 > row(labels, kind).lookup_f1 + 0.2
    assert row(labels, "token").f1 == pytest.approx(row(labels, "token").lookup_f1, abs=0.02)


def test_the_output_test_tells_a_neuron_that_promotes_its_tokens(labels, planted):
    found = row(labels, "token")
    assert len(set(found.says.split()) & set(VOCAB[PROMOTED])) >= 6
    assert found.output_gain >= 9
    assert found.output_gain_random < found.output_gain - 2
    assert found.label == f'"{TARGET}" → {", ".join(found.says.split()[:2])}'


def test_scores_are_those_of_the_other_half_counted_by_hand(planted, store, labels):
    """Every token of the other half is run by itself, and the planted rules are checked on it."""
    scan = fp.Scan.open(store)
    first, second, by = split_texts(scan, ScanSettings(**scan.manifest["settings"]))
    assert by == "text"
    assert abs(len(first) - len(second)) <= 100
    assert {p.text for p in first.passages}.isdisjoint({p.text for p in second.passages})
    target = VOCAB.index(TARGET)
    seen, ids = [], []
    for passage in second.passages:
        found = capture(planted, torch.tensor([[0, *passage.ids]]), ["activations"])
        seen.append(found["activations"][0, 0, 1:])
        ids += passage.ids
    activations, tokens = torch.cat(seen).double().numpy(), np.array(ids)
    pair = np.r_[False, (tokens[1:] == VOCAB.index(SECOND)) & (tokens[:-1] == VOCAB.index(FIRST))]
    begins = np.cumsum([0, *(len(p.ids) for p in second.passages[:-1])])
    pair[begins] = False
    for kind, fires in (("token", tokens == target), ("bigram", pair)):
        own, said = activations[:, NEURONS[kind]], row(labels, kind)
        strong = own >= said.threshold
        hits = (strong & fires).sum()
        assert (said.strong, said.fires) == (strong.sum(), fires.sum())
        assert said.precision == pytest.approx(hits / fires.sum(), abs=1e-6)
        assert said.recall == pytest.approx(hits / strong.sum(), abs=1e-6)
        assert said.f1 == pytest.approx(2 * hits / (fires.sum() + strong.sum()), abs=1e-6)
        assert said.correlation == pytest.approx(np.corrcoef(fires, own)[0, 1], abs=1e-4)


def test_the_lookup_is_the_mean_of_each_token(planted, store, labels):
    scan = fp.Scan.open(store)
    splits = split_texts(scan, ScanSettings(**scan.manifest["settings"]))[:2]
    runs = [
        torch.cat(
            [
                capture(planted, torch.tensor([[0, *p.ids]]), ["activations"])["activations"][0, 0, 1:]
                for p in half.passages
            ]
        ).double().numpy()
        for half in splits
    ]  # fmt: skip
    for kind in ("bigram", "random"):
        own = runs[0][:, NEURONS[kind]]
        means = np.array(
            [own[splits[0].tokens == t].mean() if (splits[0].tokens == t).any() else 0 for t in range(len(VOCAB))]
        )  # fmt: skip
        expected = np.corrcoef(means[splits[1].tokens], runs[1][:, NEURONS[kind]])[0, 1]
        assert row(labels, kind).lookup_correlation == pytest.approx(expected, abs=2e-3)


def test_named_neurons_get_the_same_labels_as_all(planted, store, labels):
    found = fp.label(planted, fp.Scan.open(store), neurons=["L0N3", "L0N1"])
    assert found.table.name.tolist() == ["L0N3", "L0N1"]
    assert found.table.equals(labels.table.iloc[[3, 1]].reset_index(drop=True))


def test_a_neuron_named_alone_is_compared_with_others_of_its_layer(planted, store):
    from ffnprobe.labels.measuring import choose_tested
    from ffnprobe.labels.splits import COMPANY, Columns

    columns = Columns.choose(planted.find_neurons("L0N4"), layers=1, neurons=1000)
    assert COMPANY <= len(columns.neurons[0]) <= COMPANY + 1
    assert 4 in columns.neurons[0]
    for many in (16, 17, 40, 1536):
        sizes = [len(choose_tested(number, 16, many)) for number in range(16)]
        assert sum(sizes) == 2 * many
        assert all(size == 0 or size >= 2 for size in sizes)


def test_an_interrupted_run_resumes_to_the_same_labels(
    planted, store, labels, tmp_path, monkeypatch
):
    from shutil import copytree

    from ffnprobe.labels import measuring, splits

    monkeypatch.setattr(splits, "BLOCK_TOKENS", 3000)
    monkeypatch.setattr(saved, "SECONDS", 0.0)
    folder = copytree(store, tmp_path / "scan")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    class Stop(Exception):
        pass

    stops = 0
    for _ in range(100):
        calls = 0

        def stop(*things, watched=measuring.watch_block):
            nonlocal calls
            calls += 1
            if calls > 2:
                raise Stop
            watched(*things)

        with monkeypatch.context() as patch:
            patch.setattr(measuring, "watch_block", stop)
            try:
                found = fp.label(planted, folder)
                break
            except Stop:
                stops += 1
                assert (folder / f"{saved.PARTIAL}.safetensors").is_file()
    assert stops >= 3
    assert not (folder / f"{saved.PARTIAL}.safetensors").exists()
    for name, column in found.columns.items():
        np.testing.assert_array_equal(column, fp.label(planted, folder).columns[name])
    assert found.table.label.tolist() == labels.table.label.tolist()
    np.testing.assert_allclose(found.table.f1, labels.table.f1)
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {"labels.safetensors"}


def test_a_store_with_labels_is_read_and_a_damaged_one_refused(planted, store, tmp_path):
    from shutil import copytree

    folder = copytree(store, tmp_path / "scan")
    made = fp.label(planted, folder)
    again = fp.label(planted, folder, neurons="L0N2")
    assert again.table.label.tolist() == [made.table.label[2]]
    data = bytearray((folder / "labels.safetensors").read_bytes())
    data[-3] ^= 1
    (folder / "labels.safetensors").write_bytes(data)
    with pytest.raises(DataRefused, match=r"labels\.safetensors is damaged or of another store"):
        fp.label(planted, folder)


def test_what_cannot_be_labelled_is_refused_in_words(planted, store, tmp_path):
    scan = fp.Scan.open(store)
    with pytest.raises(OptionRefused, match="share = 0: it must be above 0"):
        fp.label(planted, scan, share=0)
    with pytest.raises(OptionRefused, match="least = 2: it must be from 0 to 1"):
        fp.label(planted, scan, least=2)
    few = fp.scan(planted, {"one": "ba be bi"}, workers=1)
    with pytest.raises(DataRefused, match="1 passages are too few"):
        fp.label(planted, few)
    from dataclasses import replace

    with pytest.raises(DataRefused, match="not finished"):
        fp.label(planted, replace(scan, is_finished=False))


def test_summary_and_layers_say_how_much_is_explained(labels):
    assert labels.explained == pytest.approx(5 / 9)
    layers = labels.by_layer()
    assert layers.explained.tolist() == [pytest.approx(5 / 9)]
    assert layers.neurons.tolist() == [9]
    assert "55.6% of 9 neurons explained" in labels.summary
    assert "shuffled 0.0" in labels.summary
    # Not every neuron has a control; of one without, nothing is said.
    bare = labels.pick(["L0N0"])
    columns = {**bare.columns, "shuffled_f1": np.array([np.nan])}
    said = fp.Labels(columns, bare.provenance).summary
    assert "shuffled not among these neurons" in said


def test_one_text_is_divided_by_passages(planted, tmp_path):
    path = write_texts(tmp_path / "one.txt", texts=60)
    scan = fp.scan(planted, path, workers=1)
    assert scan.done.texts == 1
    found = fp.label(planted, scan)
    assert found.provenance.settings["halves_by"] == "passage"
    assert row(found, "token").opens == f'"{TARGET}"'

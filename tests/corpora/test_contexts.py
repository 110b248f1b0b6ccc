"""Examples to look at, and a scan's numbers joined with other tables."""

import pytest
import torch

import ffnprobe as fp
from ffnprobe.corpora.examples import table_examples
from ffnprobe.errors import DataRefused, NameNotUnderstood, OptionRefused
from ffnprobe.labels.surveying import join_survey
from tests.builders import write_model


@pytest.fixture(scope="module")
def scan(whole):
    return fp.Scan.open(whole)


def test_examples_as_a_table_as_text_and_as_a_card(scan, whole):
    found = fp.examples(whole, "L1N7")
    table = found.table
    assert list(table.columns) == [
        "name", "layer", "neuron", "list", "rank", "activation", "score", "mean_activation",
        "token", "text", "position", "before", "after", "alike",
    ]  # fmt: skip
    sides = table.groupby("list", sort=False)
    assert list(sides.groups) == ["strongest", "middle", "weakest"]
    assert sides.get_group("strongest").activation.is_monotonic_decreasing
    assert sides.get_group("middle").activation.is_monotonic_decreasing
    assert sides.get_group("weakest").score.is_monotonic_increasing
    assert len(sides.get_group("middle")) == 5
    assert table.mean_activation[0] == pytest.approx(float(scan.means.activations[1, 7]))
    settings = table.attrs["provenance"]["settings"]
    assert settings == {
        "texts": 7, "tokens": scan.done.tokens, "digest": scan.done.digest[:8], "context": 29,
    }  # fmt: skip
    assert found.rows(2)["rank"].tolist() == [1, 2] * 3
    first = found.strongest[0]
    lines = str(found).splitlines()
    assert lines[0].startswith(f"L1N7: mean {found.mean:.3f}, above zero on ")
    assert lines[3].startswith(f"{first.activation:9.3f}  score {first.score:7.3f}  ")
    assert f"[{first.token}]" in lines[3]
    assert lines[3].endswith(f"({first.text}, {first.position})")
    html = found._repr_html_()
    assert html.count("background:rgba(") == len(table)
    assert len(fp.examples(scan, "L1N7", 2).weakest) == 2


def test_tokens_cannot_write_html(tiny, speeches):
    scan = fp.scan(tiny, {"<b>": "<script> & </b>"}, workers=1)
    html = fp.examples(scan, "L0N0")._repr_html_()
    assert "<script" not in html
    assert "(&lt;b&gt;, " in html


def test_a_neuron_that_is_not_there_is_refused(scan):
    with pytest.raises(NameNotUnderstood, match="has neurons L1N0–L1N51"):
        fp.examples(scan, "L1N52")
    with pytest.raises(OptionRefused, match="top = 5: there are 4 examples kept"):
        fp.examples(scan, "L1N5", 5)


def test_a_survey_is_joined_with_how_neurons_fire(tiny, scan):
    surveyed = fp.survey(tiny, layers="1", top=2)
    found = join_survey(surveyed, scan, tiny, fp.Thresholds())
    joined = found.table
    assert len(found) == 52
    assert list(joined.columns)[-10:-2] == [
        "mean_activation", "activation_variance", "activation_skew", "activation_kurtosis",
        "firing_rate", "position_share", "is_dead", "is_position_only",
    ]  # fmt: skip
    assert joined.firing_rate.tolist() == scan.statistics.firing_rate[1].tolist()
    settings = dict(found.provenance.settings)
    assert settings.pop("scan") == scan.provenance.settings
    assert settings == surveyed.provenance.settings
    assert joined.attrs["provenance"] == found.provenance.as_dict()
    assert "scan" not in surveyed.provenance.settings


def test_dead_and_position_only_neurons_are_told(tiny_folder, tmp_path):
    """Plant them: one neuron's bias is far below, another reads the position's embedding alone."""
    from tests.builders import TINY, random_weights

    weights = random_weights(TINY)
    weights["h.0.mlp.c_fc.weight"][:, :2] = 0
    weights["h.0.mlp.c_fc.bias"][:2] = -9
    # The stream's first axis is written by the position alone and by nothing else before the MLP.
    weights["wte.weight"][:, 0] = 0
    weights["wpe.weight"][:, 0] = 20
    weights["wpe.weight"][1::2, 0] = -20
    weights["h.0.attn.c_proj.weight"][:, 0] = 0
    weights["h.0.attn.c_proj.bias"][0] = 0
    weights["h.0.mlp.c_fc.weight"][0, 1] = 1
    weights["h.0.mlp.c_fc.bias"][1] = 0
    model = fp.load(write_model(tmp_path / "planted", weights=weights), device="cpu")
    table = fp.scan(model, {"a": "the cat sat on the mat and the dog ran " * 9}, workers=1).table
    assert table.is_dead[0]
    assert table.firing_rate[0] == 0
    assert table.is_position_only[1]
    assert not table.is_position_only[2:52].all()
    assert not table.is_dead[1]


def test_means_of_a_scan_replace_activations(tiny, tiny_trace, scan, tmp_path):
    ours = fp.ablate(tiny_trace, " basketball", replace=scan.means, neurons=["L1N0-9"])
    tensor = scan.statistics.moments.mean.float()
    theirs = fp.ablate(tiny_trace, " basketball", replace=tensor, neurons=["L1N0-9"])
    assert ours.top(5).effect.tolist() == theirs.top(5).effect.tolist()
    assert ours.provenance.settings["replace"] == "mean"
    assert ours.provenance.settings["over"] == scan.corpus
    other = fp.load(write_model(tmp_path / "other", seed=7), device="cpu")
    trace = fp.run(other, "the cat")
    with pytest.raises(OptionRefused, match="the means are of other weights"):
        fp.ablate(trace, " the", replace=scan.means)
    with pytest.raises(DataRefused, match="the scan is of other weights"):
        fp.explain(other, "the cat sat", scan=scan)


def test_an_explanation_shows_what_its_neurons_fire_on(tiny, scan):
    explanation = fp.explain(tiny, "the cat sat on the", scan=scan, top=3, effects=False)
    row = explanation.neurons.iloc[0]
    mine = fp.examples(scan, row["name"])
    assert row.mean_activation == pytest.approx(mine.mean)
    assert f"[{mine.strongest[0].token}]" in row.strongest_example
    assert table_examples(scan, explanation.neurons.name.tolist(), top=2).shape == (18, 14)


def test_a_scan_tells_its_corpus_and_its_model(scan, speeches, tiny):
    assert scan.corpus.startswith("7 texts, ")
    known = scan.manifest
    assert [text["name"] for text in known["texts"]] == sorted(p.name for p in speeches.iterdir())
    assert all(len(text["hash"]) == 32 for text in known["texts"])
    assert (known["settings"]["context"], known["settings"]["bos"]) == (29, True)
    layers = scan.by_layer()
    assert layers.neurons.tolist() == [52, 52, 52]
    assert "7 texts" in scan._repr_html_()
    assert scan.provenance.source == tiny.source
    assert repr(scan) == f"Scan({tiny.name}: {scan.corpus})"


def test_every_column_is_documented(tiny, scan):
    from tests.views.test_contract import check, read_contract

    contract = read_contract()
    explanation = fp.explain(tiny, "the cat sat on the", scan=scan, top=3, effects=False)
    joined = join_survey(fp.survey(tiny, layers="1", top=2), scan, tiny, fp.Thresholds())
    made = {
        "Scan": scan.tables(), "Examples": fp.examples(scan, "L1N7").tables(),
        "Explanation": {"neurons": explanation.neurons}, "Survey": joined.tables(),
    }  # fmt: skip
    for name, tables in made.items():
        for table, frame in tables.items():
            check(list(frame.columns), contract[name, table], (name, table))


def test_figures_show_the_numbers(scan, tmp_path):
    found = fp.examples(scan, "L1N7")
    drawn = fp.plot(found)
    sides = found.sides()
    values = [
        e.activation for e in (*sides["strongest"], *sides["middle"], *reversed(sides["weakest"]))
    ]
    assert list(drawn.data[0].x) == values
    assert drawn.layout.title.text.startswith("L1N7: mean ")
    firing = fp.plot(scan)
    assert list(firing.data[0].y) == scan.table.firing_rate.tolist()
    histogram = fp.plot(scan, "histogram", neuron="L1N7")
    assert sum(histogram.data[0].y) == scan.done.tokens
    fp.save(scan, tmp_path / "neurons.csv")
    fp.save(found, tmp_path / "examples.html")
    assert "L1N51" in (tmp_path / "neurons.csv").read_text()


def test_what_closes_a_neuron_has_the_lowest_score_and_not_the_lowest_activation(tiny, speeches):
    """GELU's minimum is −0.17 at a score of −0.75; a neuron that is truly closed scores far lower."""
    scan = fp.scan(tiny, speeches, top=4, block_tokens=10**6, workers=1)
    weakest = scan.statistics.weakest
    curve = torch.nn.functional.gelu(weakest.scores, approximate="tanh")
    assert torch.allclose(curve, weakest.activations, atol=1e-5)
    strongest = scan.statistics.strongest
    curve = torch.nn.functional.gelu(strongest.scores, approximate="tanh")
    assert torch.allclose(curve, strongest.activations, atol=1e-5)
    closed = weakest.scores[..., 0] < -2
    assert closed.any()
    assert (weakest.activations[..., 0][closed] > -0.05).all(), (
        "the lowest activations are elsewhere"
    )


def test_sentences_that_are_nearly_the_same_are_shown_once_with_their_number(pocket):
    said = "Michael Jordan plays the sport of basketball."
    texts = {
        "a": said,
        "b": said,
        "c": said.replace("basketball", "golf"),
        "d": "Paris is in France.",
    }
    found = fp.examples(fp.scan(pocket, texts, top=4), "L0N378")
    first = found.strongest[0]
    assert first.alike == 3
    assert sum(example.alike for example in found.strongest) == 4
    assert "3 alike)" in str(found)
    assert found.table.alike[0] == 3


def test_examples_from_the_middle_lie_between_the_extremes(scan):
    found = fp.examples(scan, "L1N7")
    values = [example.activation for example in found.middle]
    assert len(values) == min(20, scan.done.passages)
    assert found.strongest[0].activation >= max(values)
    assert min(example.score for example in found.middle) >= found.weakest[0].score
    places = [int(len(values) * share) for share in (0.1, 0.3, 0.5, 0.7, 0.9)]
    assert [e.activation for e in found.sides()["middle"]] == [values[n] for n in places]

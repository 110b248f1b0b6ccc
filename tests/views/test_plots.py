"""Figures: their numbers are the result's, none is empty, no token is markup."""

import math

import plotly.graph_objects as go
import pytest

import ffnprobe as fp
from ffnprobe.errors import DataRefused, FileNotWritten, OptionRefused
from ffnprobe.views import saving
from ffnprobe.views.figures import FILES, find_figures, plot_all
from tests.views.results import every_result


def draw_all(results):
    """Draw every figure of every result, by name."""
    drawn = {}
    for name, result in results.items():
        kind = type(result).__name__
        for figure in find_figures(kind) if kind in FILES else ():
            if (
                figure == "paths"
                and name == "Explanation"
                and not result.paths.push_through_attention.any()
            ):
                continue  # nothing went through attention: refused in words
            if figure == "curve" and not len(result.curve.table):
                continue  # the answer is not first: refused in words
            if name == "Circuit" and (
                not result.kept if figure == "graph" else not result.recovery
            ):
                continue  # no neuron has influence: refused in words
            if figure == "changed" and not len(result.changed):
                continue  # no other prompt changed: refused in words
            more = {"neuron": {"neuron": "L0N1"}, "pushes": {"pushes": results["Pushes"]},
                    "histogram": {"neuron": "L0N1"}}  # fmt: skip
            drawn[name, figure] = fp.plot(result, figure, **more.get(figure, {}))
    return drawn


def numbers(values):
    """List the finite numbers of a trace's coordinate, however nested."""
    if values is None:
        return []
    if isinstance(values, (list, tuple)):
        return [number for value in values for number in numbers(value)]
    return [values] if isinstance(values, (int, float)) and math.isfinite(values) else []


def is_drawn(figure: go.Figure) -> bool:
    """Say whether a figure shows a number, or says in words why there is none."""
    seen = [
        number
        for trace in figure.data
        for axis in ("y", "z")
        if axis in trace
        for number in numbers(trace[axis])
    ]
    heat = [trace for trace in figure.data if trace.type == "heatmap"]
    shown = bool(seen) and all(numbers(trace.z) for trace in heat)
    return shown or "undefined" in str(figure.layout.annotations) + str(figure.layout.title.text)


def test_every_figure_of_every_result_has_numbers_a_title_and_the_theme(results):
    drawn = draw_all(results)
    assert len(drawn) >= 28
    for name, figure in drawn.items():
        assert isinstance(figure, go.Figure)
        assert is_drawn(figure), name
        assert figure.layout.title.text, name
        assert figure.layout.template.layout.font.family.startswith("Helvetica")


@pytest.mark.parametrize("prompt", [[5], [5, 6]])
def test_no_figure_is_empty_for_one_token_one_layer_all_zeros(zeros, prompt):
    for name, figure in draw_all(every_result(zeros, prompt, 7, bos=False)).items():
        assert is_drawn(figure), name


def test_signed_colours_are_centred_at_zero(results):
    for name, figure in draw_all(results).items():
        for trace in figure.data:
            if trace.type == "heatmap" and trace.zmid is not None:
                assert (trace.zmin, trace.zmid) == (-trace.zmax, 0.0), name


def test_tokens_are_not_markup(hostile_results):
    for name, figure in draw_all(hostile_results).items():
        for text in _strings(figure.to_plotly_json()):
            assert "<script" not in text, name
            assert "<img" not in text, name
            assert "<b>" not in text, name
            assert "$x$" not in text, name


def _strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _strings(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _strings(part)


def test_predictions_are_the_probabilities(jordan):
    figure = fp.plot(jordan, top=4)
    assert list(figure.data[0].x) == jordan.predictions(4).probability.tolist()
    assert figure.layout.yaxis.ticktext[0] == "␣basketball"
    assert figure.layout.title.text.startswith("␣basketball comes next with probability ")


def test_the_waterfall_ends_at_the_logit(jordan):
    pushes = fp.attribute(jordan, " basketball")
    for figure in (fp.plot(pushes, "account"), fp.plot(fp.explain(jordan.model, jordan.prompt, " basketball", effects=False))):  # fmt: skip
        *steps, total = figure.data[0].y
        assert sum(steps) == pytest.approx(pushes.logit, abs=1e-3)
        assert total == pytest.approx(pushes.logit)
        assert list(figure.data[0].measure) == ["relative"] * len(steps) + ["total"]


def test_layers_promote_above_and_suppress_below(jordan):
    pushes = fp.attribute(jordan, " basketball")
    figure, table = fp.plot(pushes), pushes.by_layer()
    by_name = {trace.name: list(trace.y) for trace in figure.data}
    assert by_name["neurons toward"] == table.toward.tolist()
    assert by_name["neurons against"] == table.against.tolist()
    assert by_name["the layer's sum"] == table["push"].tolist()
    assert min(by_name["neurons toward"]) >= 0 >= max(by_name["neurons against"])


def test_the_scatter_holds_every_neuron_once(results):
    effects, pushes = results["Effects"], results["Pushes"]
    _, rest, strongest = fp.plot(effects, "pushes", pushes=pushes).data
    points = [*zip(rest.x, rest.y, strict=True), *zip(strongest.x, strongest.y, strict=True)]
    expected = zip(pushes.values.ravel().tolist(), effects.values.ravel().tolist(), strict=True)
    assert sorted(points) == sorted(expected)
    assert "question" in strongest.customdata[0]


def test_the_map_the_lens_and_the_stages_show_their_numbers(results):
    effects = results["LayerEffects"]
    grid = fp.plot(effects).data[0]
    assert [list(row) for row in grid.z] == effects.values.tolist()
    assert len(grid.x) == len(effects.tokens)
    lens = results["Lens"]
    logit, rank = fp.plot(lens).data
    assert list(logit.y) == lens.table.logit.tolist()
    assert list(rank.y) == lens.table["rank"].tolist()
    stages = results["Stages"]
    pattern, taken, scores, activations, output, after = fp.plot(stages).data
    assert [list(row) for row in scores.z] == stages.scores.tolist()
    assert [list(row) for row in activations.z] == stages.activations.tolist()
    assert [list(row) for row in after.z] == stages.after.tolist()
    assert len(pattern.z) == len(pattern.z[0]) == len(taken.z) == len(output.z)


def test_a_token_that_stands_twice_has_two_columns(tiny):
    trace = fp.run(tiny, "the the the", bos=False)
    figure = fp.plot(trace, "lens")
    assert len(set(trace.tokens)) < len(trace)
    assert len(figure.data[0].x) == len(set(figure.data[0].x)) == len(trace)


def test_a_neuron_over_a_prompt_is_its_activations(results):
    trace = results["Trace"]
    figure = fp.plot(trace, "neuron", neuron="L1N7")
    shown = numbers([list(row) for row in figure.data[0].z])
    assert shown == trace.activations[1, :, 7].tolist()


def test_the_survey_figures_hold_every_neuron(results):
    survey = results["Survey"]
    kinds = fp.plot(survey)
    assert sum(len(trace.x) for trace in kinds.data) == len(survey)
    norms = fp.plot(survey, "norms")
    assert list(norms.data[1].y) == survey.table.answer_norm.tolist()


def test_what_cannot_be_drawn_is_said_in_words(results):
    with pytest.raises(OptionRefused) as refused:
        fp.plot(results["Pushes"], "pie")
    assert str(refused.value) == ('Pushes has no figure "pie".\n  try: layers, account, neurons')
    with pytest.raises(DataRefused, match="there is no figure for Related"):
        fp.plot(results["Related"])
    with pytest.raises(DataRefused, match="there is no figure for a table by itself"):
        fp.plot(results["Pushes"].by_part())
    with pytest.raises(OptionRefused, match="needs the pushes"):
        fp.plot(results["Effects"], "pushes")
    with pytest.raises(
        OptionRefused, match="the effects and the pushes differ in their answer: ␣the and ␣cat"
    ):
        fp.plot(results["Effects"], "pushes", pushes=fp.attribute(results["Trace"], " cat"))
    folded = fp.attribute(results["Trace"], " the", convention="folded")
    with pytest.raises(OptionRefused) as refused:
        fp.plot(results["Effects"], "pushes", pushes=folded)
    assert str(refused.value) == (
        "the effects and the pushes differ in their convention: centred and folded.\n"
        "  try: make both with the same convention"
    )
    earlier = fp.ablate(results["Trace"], " the", position=1, neurons=["L1"])
    with pytest.raises(OptionRefused, match="the pushes differ in their position: 1 and "):
        fp.plot(earlier, "pushes", pushes=fp.attribute(results["Trace"], " the"))
    explanation = fp.explain(results["Trace"].model, "the cat", " the", top=2, effects=False)
    with pytest.raises(OptionRefused, match="without effects"):
        fp.plot(explanation, "map")
    assert len(plot_all(explanation)) == 4


def test_a_picture_needs_a_known_suffix_kaleido_and_a_browser(results, tmp_path, monkeypatch):
    figure = fp.plot(results["Trace"])
    with pytest.raises(
        FileNotWritten, match=r'"\.jpg" is not a format that figures are written in'
    ):
        saving.save_figure(figure, tmp_path / "x.jpg")

    def fail(*_, **__):
        raise RuntimeError("no browser found\nmore")

    monkeypatch.setattr(go.Figure, "to_image", fail)
    with pytest.raises(FileNotWritten, match=r"could not draw x\.png: no browser found"):
        saving.save_figure(figure, tmp_path / "x.png")
    monkeypatch.setattr(saving, "find_spec", lambda name: None)
    with pytest.raises(FileNotWritten, match="needs the package kaleido"):
        saving.save_figure(figure, tmp_path / "x.png")
    assert not list(tmp_path.iterdir())
    saving.save_figure(figure, tmp_path / "x.html")
    assert (tmp_path / "x.html").stat().st_size > 1_000_000


def test_a_comparison_shows_both_prompts_and_every_neuron(results):
    comparison = results["Comparison"]
    first, second = fp.plot(comparison).data
    table = comparison.top(12)
    assert list(first.x) == table.push_first.tolist()
    assert list(second.x) == table.push_second.tolist()
    line, rest, strongest = fp.plot(comparison, "activations").data
    assert list(line.x) == list(line.y)
    assert len(rest.x) + len(strongest.x) == comparison.values.numel()
    assert set(rest.text).isdisjoint(comparison.top(40, by="activation").name)
    neurons, attention, sums = fp.plot(comparison, "layers").data
    layers = comparison.by_layer()
    assert list(neurons.y) == layers.neurons.tolist()
    assert list(attention.y) == layers.attention.tolist()
    assert list(sums.y) == layers.difference.tolist()

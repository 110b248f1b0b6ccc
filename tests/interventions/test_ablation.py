"""Exact effects: equal to one hooked TransformerLens run per neuron, whatever is removed and where."""

import math

import pytest
import torch
from torch import Tensor

import ffnprobe as fp
from ffnprobe.errors import FfnProbeError, NameNotUnderstood, OptionRefused
from ffnprobe.interventions import replay, sweeps
from ffnprobe.models.bridge import bridge_of
from tests.cli.runner import ffnprobe
from tests.interventions.oracles import (
    centre,
    direct,
    hooked,
    in_float64,
    removed,
    some_means,
)

POSITIONS = [-1, 3, [2, 5], "all"]


def places(trace: fp.Trace, position: object) -> list[int]:
    if position == "all":
        return list(range(len(trace)))
    return [trace.at(p) for p in ([position] if isinstance(position, int) else position)]


def expected(
    trace: fp.Trace, token: int, layer: int, neurons: list[int], position: object, values: Tensor
) -> tuple[Tensor, Tensor]:
    """Effects on logit and log-probability, by TransformerLens."""
    logits = removed(trace.model, list(trace.ids), layer, neurons, places(trace, position), values)
    clean, changed = trace.logits[-1].double(), logits[:, -1].double()
    logs = clean.log_softmax(-1)[token] - changed.log_softmax(-1)[:, token]
    return centre(clean)[token] - centre(changed)[:, token], logs


@pytest.mark.parametrize("position", POSITIONS, ids=str)
@pytest.mark.parametrize("replace", ["zero", "mean"])
def test_every_neuron_of_tiny(tiny_trace: fp.Trace, position: object, replace: str) -> None:
    model, token = tiny_trace.model, 280
    values = torch.zeros(3, 52) if replace == "zero" else some_means(model)
    effects = fp.ablate(
        tiny_trace, token, position=position, replace="zero" if replace == "zero" else values
    )
    assert effects.values.shape == (3, 52)
    assert effects.values.abs().mean() > 1e-2
    for layer in range(3):
        logit, log = expected(tiny_trace, token, layer, list(range(52)), position, values)
        assert torch.allclose(effects.values[layer].double(), logit, atol=2e-4)
        assert torch.allclose(effects.log_probability[layer].double(), log, atol=2e-4)


@pytest.mark.parametrize("position", [-1, 2, "all"], ids=str)
@pytest.mark.parametrize("replace", ["zero", "mean"])
def test_sample_of_pocket(jordan: fp.Trace, position: object, replace: str) -> None:
    model, token = jordan.model, jordan.model.vocab.one(" basketball")
    values = torch.zeros(6, 768) if replace == "zero" else model.means
    sample = [0, 5, 77, 401, 767]
    names = [f"L{layer}N{n}" for layer in range(6) for n in sample]
    effects = fp.ablate(jordan, " basketball", position=position, replace=replace, neurons=names)
    assert int((~effects.values.isnan()).sum()) == len(names)
    for layer in range(6):
        logit, log = expected(jordan, token, layer, sample, position, values)
        assert torch.allclose(effects.values[layer, sample].double(), logit, atol=5e-5)
        assert torch.allclose(effects.log_probability[layer, sample].double(), log, atol=5e-5)


@pytest.mark.shared
@pytest.mark.parametrize("position", [-1, 3, "all"], ids=str)
def test_sample_of_gpt2_small_shape(small: fp.Model, position: object) -> None:
    trace = fp.run(small, "Michael Jordan plays the sport of", patterns=False)
    token, sample = small.vocab.one(" basketball"), [0, 1531, 3071]
    for replace, values in (("zero", torch.zeros(12, 3072)), ("mean", some_means(small))):
        names = [f"L{layer}N{n}" for layer in (0, 7, 11) for n in sample]
        given = replace if replace == "zero" else values
        effects = fp.ablate(trace, token, position=position, replace=given, neurons=names)
        for layer in (0, 7, 11):
            logit, log = expected(trace, token, layer, sample, position, values)
            assert torch.allclose(effects.values[layer, sample].double(), logit, atol=2e-5)
            assert torch.allclose(effects.log_probability[layer, sample].double(), log, atol=2e-5)


@pytest.mark.parametrize("position", [-1, 3], ids=str)
def test_float64_equals_the_whole_run(tiny_trace: fp.Trace, position: int) -> None:
    trace, place, token = in_float64(tiny_trace), tiny_trace.at(position), 11
    effects = fp.ablate(trace, token, position=position)
    for layer, neuron in ((0, 0), (0, 51), (1, 17), (2, 33)):

        def silence(
            at: int, activations: Tensor, layer: int = layer, neuron: int = neuron
        ) -> Tensor:
            activations = activations.clone()
            if at == layer:
                activations[place, neuron] = 0
            return activations

        changed = direct(trace.model, list(trace.ids), silence)["logits"][-1]
        wanted = centre(trace.logits[-1])[token] - centre(changed)[token]
        assert abs(float(effects.values[layer, neuron] - wanted)) < 1e-11
        logs = trace.logits[-1].log_softmax(-1)[token] - changed.log_softmax(-1)[token]
        assert abs(float(effects.log_probability[layer, neuron] - logs)) < 1e-11


def test_last_layer_with_the_scale_frozen_loses_exactly_the_push(tiny_trace: fp.Trace) -> None:
    """Really ablate each neuron of the last layer, the final scale held by a hook."""
    model, token = tiny_trace.model, 42
    last, ids = model.config.layers - 1, [list(tiny_trace.ids)] * 52
    scale = tiny_trace.final_scale[-1]

    def silence_each(activations: Tensor, hook: object) -> Tensor:
        return activations * (1 - torch.eye(52))[:, None]

    held: list[Tensor] = []

    def keep(final: Tensor, hook: object) -> None:
        held.append(final[:, -1])

    with torch.no_grad():
        bridge_of(model).run_with_hooks(
            torch.tensor(ids),
            fwd_hooks=[
                (f"blocks.{last}.mlp.hook_post", silence_each),
                (f"blocks.{last}.hook_resid_post", keep),
            ],
        )
    pushes = fp.attribute(tiny_trace, token, convention="folded").values[last]
    lost = (tiny_trace.final[-1] - held[0]) @ model.unembedding[token] / scale
    assert pushes.abs().max() > 0.1
    assert torch.allclose(lost, pushes, atol=1e-4)
    # Unfrozen the scale reacts; the difference is why both are shown.
    effects = fp.ablate(tiny_trace, token, convention="folded").values[last]
    assert not torch.allclose(effects, pushes, atol=1e-2)


def test_folded_effects_are_of_the_models_own_logit(tiny_trace: fp.Trace) -> None:
    effects = fp.ablate(tiny_trace, 280, neurons=["L1N3"], convention="folded")
    changed = removed(tiny_trace.model, list(tiny_trace.ids), 1, [3], [-1], torch.zeros(3, 52))
    wanted = float(tiny_trace.logits[-1, 280] - changed[0, -1, 280])
    assert float(effects.values[1, 3]) == pytest.approx(wanted, abs=2e-4)
    centred = fp.ablate(tiny_trace, 280, neurons=["L1N3"])
    assert abs(float(centred.values[1, 3]) - wanted) > 5e-4


def test_versus_is_the_difference_of_two_answers(tiny_trace: fp.Trace) -> None:
    one, other = (fp.ablate(tiny_trace, token).values for token in (280, 11))
    both, turned = fp.ablate(tiny_trace, 280, versus=11), fp.ablate(tiny_trace, 11, versus=280)
    assert torch.allclose(both.values, one - other, atol=2e-4)
    assert torch.allclose(both.values, -turned.values, atol=1e-6)
    assert both.log_probability is None
    assert "log_probability_effect" not in both.top(1)


@pytest.mark.parametrize("position", [-1, 3, "all"], ids=str)
def test_answer_of_several_tokens_is_teacher_forced(tiny_trace: fp.Trace, position: object) -> None:
    model, answer = tiny_trace.model, " basketball Paris"
    pieces = model.vocab.ids(answer)
    assert len(pieces) > 1
    ids, first = [*tiny_trace.ids, *pieces[:-1]], len(tiny_trace) - 1

    def summed(logits: Tensor) -> Tensor:
        logs = logits[:, first:].double().log_softmax(-1)
        return sum(logs[:, order, piece] for order, piece in enumerate(pieces))

    effects = fp.ablate(tiny_trace, answer, position=position)
    for layer in range(3):
        changed = removed(
            model, ids, layer, list(range(52)), places(tiny_trace, position), torch.zeros(3, 52)
        )
        wanted = summed(hooked(model, ids, {})) - summed(changed)
        assert torch.allclose(effects.log_probability[layer].double(), wanted, atol=5e-4)
    assert effects.provenance.prompt == tiny_trace.prompt


@pytest.mark.parametrize("replace", ["zero", "mean"])
def test_map_of_whole_layers(tiny_trace: fp.Trace, replace: str) -> None:
    model, token = tiny_trace.model, 280
    values = torch.zeros(3, 52) if replace == "zero" else some_means(model)
    found = fp.ablate_layers(tiny_trace, token, replace="zero" if replace == "zero" else values)
    assert found.values.shape == (3, len(tiny_trace))
    for layer in range(3):
        for position in range(len(tiny_trace)):

            def edit(activations: Tensor, layer: int = layer, position: int = position) -> None:
                activations[:, position] = values[layer]

            logits = hooked(model, list(tiny_trace.ids), {layer: edit})[0, -1]
            effect = float(centre(tiny_trace.logits[-1])[token] - centre(logits)[token])
            assert float(found.values[layer, position]) == pytest.approx(effect, abs=3e-4)
    table = found.table
    assert list(table.columns) == ["layer", "position", "token", "effect", "log_probability_effect"]
    assert table.effect[len(tiny_trace) + 2] == float(found.values[1, 2])
    # Before the last position, the last layer's neurons reach no prediction that is read.
    assert found.values[2, :-1].abs().max() < 1e-5


def test_groups_are_removed_together(tiny_trace: fp.Trace) -> None:
    groups = [["L0N3", "L0N40", "L2N7"], ["L1N1-L1N20"], ["L2N7"]]
    found = fp.ablate(tiny_trace, 280, together=groups, position=[3, -1])
    for group, effect in zip(groups, found.values, strict=True):
        chosen = fp.ablate(tiny_trace, 280, neurons=group).values.isnan().logical_not()

        def edits(layer: int, chosen: Tensor = chosen):
            def edit(activations: Tensor) -> None:
                for position in (3, -1):
                    activations[:, position, chosen[layer]] = 0

            return edit

        logits = hooked(
            tiny_trace.model, list(tiny_trace.ids), {layer: edits(layer) for layer in range(3)}
        )
        wanted = float(centre(tiny_trace.logits[-1])[280] - centre(logits[0, -1])[280])
        assert float(effect) == pytest.approx(wanted, abs=3e-4)
    alone = fp.ablate(tiny_trace, 280, neurons=["L2N7"], position=[3, -1])
    assert float(found.values[2]) == pytest.approx(float(alone.values[2, 7]), abs=1e-4)


def test_chunks_change_nothing(tiny_trace: fp.Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    def all_results() -> list[Tensor]:
        effects, layers = fp.ablate(tiny_trace, 5, position=2), fp.ablate_layers(tiny_trace, 5)
        groups = fp.ablate(tiny_trace, 5, together=[["L0N1"], ["L1N2", "L0N1"]])
        results = (effects, layers, groups)
        return [part for r in results for part in (r.values, r.log_probability)]

    whole = all_results()
    calls: list[tuple[int, int]] = []
    monkeypatch.setattr(sweeps, "NUMBERS_AT_ONCE", 2000)
    monkeypatch.setattr(replay, "LOGITS_AT_ONCE", 700)
    for a, b in zip(whole, all_results(), strict=True):
        assert torch.allclose(a, b, atol=1e-4)
    fp.ablate(tiny_trace, 5, progress=lambda done, total: calls.append((done, total)))
    assert len(calls) > 3
    assert calls[-1] == (156, 156)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)


def test_top_and_against(tiny_trace: fp.Trace) -> None:
    effects = fp.ablate(tiny_trace, 280, neurons=["L1"])
    top, against = effects.top(52), effects.against(3)
    assert list(top.columns[:6]) == [
        "name", "layer", "neuron", "activation", "effect", "log_probability_effect",
    ]  # fmt: skip
    assert top.effect.is_monotonic_decreasing
    assert set(top.layer) == {1}
    row = top.iloc[0]
    assert row["name"] == f"L1N{row.neuron}"
    assert row.effect == pytest.approx(float(effects.values[1].max()))
    assert row.activation == pytest.approx(float(tiny_trace.activations[1, -1, row.neuron]))
    assert list(against["name"]) == list(top["name"])[:-4:-1]
    assert effects.provenance.answer == tiny_trace.model.vocab.show(280)
    assert effects.provenance.position == len(tiny_trace) - 1
    assert effects.provenance.settings == {"replace": "zero"}
    assert effects.provenance.convention == "centred"
    assert "L1N" in effects._repr_html_()


def test_prompt_at_the_models_maximum_length(tiny: fp.Model) -> None:
    trace = fp.run(tiny, [5] * 28, patterns=False)
    assert len(trace) == tiny.config.positions
    logit, _ = expected(trace, 7, 1, [4], 12, torch.zeros(3, 52))
    effect = fp.ablate(trace, 7, position=12, neurons=["L1N4"]).values[1, 4]
    assert float(effect) == pytest.approx(float(logit), abs=2e-4)
    with pytest.raises(FfnProbeError, match="the prompt is 29 tokens and the answer"):
        fp.ablate(trace, " basketball Paris")


def test_interrupted_sweep_leaves_nothing(tiny_trace: fp.Trace) -> None:
    before = fp.ablate(tiny_trace, 5).values

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fp.ablate(tiny_trace, 5, progress=interrupt)
    assert torch.equal(fp.ablate(tiny_trace, 5).values, before)
    assert tiny_trace.model.is_unchanged()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"replace": "mean"}, r"has no activation means: they are measured over a corpus.\n  try: .*scan"),
        ({"replace": "median"}, "replace = 'median': it must be zero or mean"),
        ({"replace": torch.zeros(2, 52)}, r"the replacement is \[2, 52\]; .* 3 layers × 52 neurons"),
        ({"replace": torch.full((3, 52), math.nan)}, "activations that are not numbers"),
        ({"neurons": ["L3N0"]}, "L3N0: .* has layers L0–L2"),
        ({"neurons": ["L0N52"]}, "L0N52: .* has neurons L0N0–L0N51"),
        ({"neurons": []}, "no neuron is named"),
        ({"position": 99}, "position 99 is outside the prompt: it has 0–"),
        ({"position": "last"}, '"last" is not a position'),
        ({"position": []}, "there is no position to change"),
        ({"versus": " basketball Paris"}, "--versus needs one"),
        ({"answer": 301}, "token id 301 does not exist: .* has 0–300"),
        ({"answer": ""}, '"" is not a token; an answer needs one'),
    ],
)  # fmt: skip
def test_bad_input_is_named(tiny_trace: fp.Trace, options: dict, words: str) -> None:
    with pytest.raises(FfnProbeError, match=words):
        fp.ablate(tiny_trace, **({"answer": " basketball"} | options))


def test_top_k_beyond_the_neurons_asked(tiny_trace: fp.Trace) -> None:
    effects = fp.ablate(tiny_trace, 5, neurons=["L0N1", "L0N2"])
    with pytest.raises(FfnProbeError, match="top = 3: there are 2 neurons"):
        effects.top(3)
    with pytest.raises(FfnProbeError, match="no group of neurons"):
        fp.ablate(tiny_trace, 5, together=[])


def test_a_neuron_s_own_activation_put_back_has_no_effect(jordan, tiny_trace):
    """Clean and changed are rows of one batch: what they share in rounding cancels."""
    own = jordan.activations[:, -1]
    effects = fp.ablate(jordan, " basketball", replace=own)
    assert float(effects.values.abs().max()) == 0
    assert float(effects.log_probability.abs().max()) == 0
    groups = [["L0N378", "L1N5"], ["L4"], ["L0N31", "L3N700", "L5N2"]]
    assert fp.ablate(jordan, " basketball", together=groups, replace=own).values.tolist() == [
        0,
        0,
        0,
    ]
    # Rows that do not fill a vector of the processor are rounded by their place in the batch.
    odd = fp.ablate(tiny_trace, " football", replace=tiny_trace.activations[:, 2], position=2)
    assert float(odd.values.abs().max()) < 1e-6
    assert float(odd.log_probability.abs().max()) < 3e-6


def test_all_positions_are_those_of_the_prompt(tiny_trace):
    several = fp.ablate(tiny_trace, " zebra", neurons=["L0N3"], position="all")
    assert several.positions == tuple(range(len(tiny_trace)))
    assert several.provenance.settings["positions_of"] == "the prompt, not the answer"
    one = fp.ablate(tiny_trace, " cat", neurons=["L0N3"], position="all")
    assert "positions_of" not in one.provenance.settings


def test_a_name_carries_its_position(tiny_trace):
    """L1N3@2 is L1N3 at position 2, alone or in a group over several positions, as the hooks remove it."""
    alone = fp.ablate(tiny_trace, 280, neurons=["L1N3@2", "L0N4@2"])
    assert alone.positions == (2,)
    same = fp.ablate(tiny_trace, 280, neurons=["L1N3", "L0N4"], position=2)
    assert torch.equal(alone.values.nan_to_num(), same.values.nan_to_num())
    group = fp.ablate(tiny_trace, 280, together=[["L1N3@2", "L0N4@4"], ["L1N3", "L0N4@4"]])
    first, last = tiny_trace.logits[-1], len(tiny_trace) - 1

    def without(position):
        def edit(layer, neuron, at):
            def change(activations):
                activations[:, at, neuron] = 0

            return {layer: change}

        after = hooked(tiny_trace.model, list(tiny_trace.ids), edit(1, 3, position) | edit(0, 4, 4))
        return after[0, -1]

    for row, position in enumerate((2, last)):
        after = without(position)
        lost = (first[280] - first.mean()) - (after[280] - after.mean())
        assert float(group.values[row]) == pytest.approx(float(lost), abs=1e-4)
    with pytest.raises(OptionRefused, match="at several positions"):
        fp.ablate(tiny_trace, 280, neurons=["L1N3@2", "L0N4@3"])
    with pytest.raises(OptionRefused, match="another position"):
        fp.ablate(tiny_trace, 280, neurons=["L1N3@2"], position=3)
    with pytest.raises(NameNotUnderstood, match="no position behind the @"):
        fp.ablate(tiny_trace, 280, together=["L1N3@x"])
    with pytest.raises(OptionRefused, match="is at position 2"):
        fp.drivers(tiny_trace, "L1N3@2", position=1)
    assert fp.read(tiny_trace.model, "L1N3@2").name == "L1N3"


def test_what_is_left_out_is_said(pocket, jordan):
    """Most of basketball comes from " Jordan"; at the last token neurons do little."""
    said = fp.estimate(jordan, " basketball").describe_elsewhere([6])
    assert said == "by estimate neurons at ␣Jordan help more: position 2"
    assert fp.estimate(jordan, " basketball").describe_elsewhere([2]) == ""
    first, second = fp.run(pocket, [jordan.prompt, "Tiger Woods plays the sport of"])
    heads = [fp.attribute(t, " basketball", versus=" golf").account.heads.sum() for t in (first, second)]  # fmt: skip
    title = fp.compare(first, second).title
    assert f"{float(heads[0] - heads[1]):+.1f} of the difference of" in title
    found = ffnprobe("attribute", jordan.prompt, " basketball", "--quiet").stdout
    by_position = fp.paths(jordan, " basketball").by_position().set_index("token")
    parts = by_position[["embedding", "position_embedding", "neurons"]].sum(axis=1)
    assert f"{parts['␣Jordan']:.1f} of 21.0 logits come through attention from ␣Jordan" in found
    ablated = ffnprobe("ablate", jordan.prompt, " basketball", "--quiet", "-k", "2").stdout
    assert ablated.startswith("effects on ␣basketball after ")
    assert "; by estimate neurons at ␣Jordan help more: position 2" in ablated

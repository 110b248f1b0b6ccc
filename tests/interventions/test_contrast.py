"""Neurons set to their contrast mean: equal to one hooked TransformerLens run per neuron."""

import pytest
import torch

import ffnprobe as fp
from ffnprobe.errors import OptionRefused, PromptRefused
from ffnprobe.interventions.replay import read_answer
from ffnprobe.interventions.sweeps import sweep_layers
from ffnprobe.tracing.contrast import contrast_with
from tests.interventions.oracles import centre, hooked, removed

ANSWER = 280


@pytest.fixture(scope="module")
def contrast(tiny):
    """Two contrast prompts; positions 1 and 2 have no counterpart in one, and 1 in none."""
    trace = fp.run(tiny, [5, 6, 7, 8, 9, 10], bos=False)
    others = [fp.run(tiny, [5, 31, 9, 10], bos=False), fp.run(tiny, [5, 40, 41, 9, 10], bos=False)]
    found = contrast_with(trace, ANSWER, others, answers=[1, 2])
    assert found.alignment.unmatched == (1,)
    assert torch.equal(found.replacement[:, 2], others[1].activations[:, 1])
    return found


@pytest.mark.parametrize("position", [2, 3, 5])
def test_effects_are_those_of_one_hooked_pass_a_neuron(contrast, position):
    trace = contrast.trace
    effects = fp.ablate(trace, ANSWER, contrast=contrast, position=position)
    assert effects.values.abs().mean() > 1e-3
    for layer in range(3):
        values = contrast.replacement[:, position]
        logits = removed(trace.model, list(trace.ids), layer, list(range(52)), [position], values)
        expected = centre(trace.logits[-1])[ANSWER] - centre(logits[:, -1])[:, ANSWER]
        assert torch.allclose(effects.values[layer].double(), expected, atol=2e-4)


def test_the_map_is_that_of_hooked_layers(contrast):
    trace = contrast.trace
    found = fp.ablate_layers(trace, ANSWER, contrast=contrast).values
    assert found.shape == (3, len(trace))

    def edit(activations):
        activations[0, 3] = contrast.replacement[2, 3]

    logits = hooked(trace.model, list(trace.ids), {2: edit})
    expected = centre(trace.logits[-1])[ANSWER] - centre(logits[0, -1])[ANSWER]
    assert float(found[2, 3]) == pytest.approx(float(expected), abs=2e-4)
    assert torch.equal(found[:, :2], torch.zeros(3, 2))  # the same beginning; no counterpart


def test_the_estimate_is_the_slope_times_the_gap(contrast):
    trace = contrast.trace
    given = fp.estimate(trace, ANSWER, contrast=contrast).values
    ones = torch.ones(3, 52)
    zero, one = (fp.estimate(trace, ANSWER, replace=by).values for by in ("zero", ones))
    slopes = zero - one
    expected = (trace.activations - contrast.replacement) * slopes
    assert torch.allclose(given, expected, atol=1e-5)
    assert torch.equal(given[:, 0], torch.zeros_like(given[:, 0]))


def test_a_group_is_removed_to_its_contrast_means(contrast):
    trace, names = contrast.trace, ["L0N3", "L1N5"]

    def edit(layer, neuron):
        def change(activations):
            activations[0, 5, neuron] = contrast.replacement[layer, 5, neuron]

        return change

    logits = hooked(trace.model, list(trace.ids), {0: edit(0, 3), 1: edit(1, 5)})
    expected = centre(trace.logits[-1])[ANSWER] - centre(logits[0, -1])[ANSWER]
    found = fp.ablate(trace, ANSWER, together=[names], contrast=contrast)
    assert float(found.values) == pytest.approx(float(expected), abs=2e-4)


def test_an_answer_of_several_tokens_keeps_its_pieces(contrast, tiny):
    answer = " the cat"
    assert len(tiny.vocab.pieces(answer)) > 1
    prompts = list(contrast.others)
    found = fp.ablate(contrast.trace, answer, contrast=prompts, neurons=["L1"])
    assert found.values[1].isfinite().all()
    assert found.values[1].abs().max() > 0


def test_the_provenance_names_the_contrast_prompts(contrast):
    others = [other.prompt for other in contrast.others]
    for found in (
        fp.ablate(contrast.trace, ANSWER, contrast=contrast, neurons=["L1N1"]),
        fp.ablate_layers(contrast.trace, ANSWER, contrast=contrast),
        fp.estimate(contrast.trace, ANSWER, contrast=contrast),
    ):
        settings = found.provenance.settings
        assert settings["replace"] == "contrast mean"
        assert settings["contrast"] == others
        assert settings["no_counterpart"] == list(contrast.unmatched)


def test_what_cannot_be_contrasted_is_refused(contrast, tiny):
    trace = contrast.trace
    with pytest.raises(OptionRefused, match="set to its mean over them") as caught:
        fp.ablate(trace, ANSWER, contrast=contrast, replace="zero")
    assert caught.value.remedy == "leave out replace, or contrast"
    other = fp.run(tiny, [5, 6, 7], bos=False)
    with pytest.raises(PromptRefused, match="the contrast is of another prompt"):
        fp.ablate(other, ANSWER, contrast=contrast)
    with pytest.raises(PromptRefused, match="has a prompt with the answer"):
        fp.estimate(trace, 1, contrast=contrast)


def test_a_position_that_is_the_same_or_unmatched_costs_nothing(contrast):
    found = sweep_layers(read_answer(contrast.trace, ANSWER), contrast.replacement)
    effects = found.logit.reshape(3, len(contrast.trace))
    assert effects[:, :2].abs().max() < 1e-4
    assert effects[:, 3:].abs().max() > 1e-2


def test_the_answers_pieces_stay_as_they_are(contrast):
    trace, model = contrast.trace, contrast.trace.model
    longer = fp.run(model, [*trace.ids, ANSWER], bos=False)
    given = contrast.replacement_for(longer)
    assert given.shape[1] == len(trace) + 1
    assert torch.equal(given[:, -1], longer.activations[:, -1])
    assert torch.equal(given[:, :-1], contrast.replacement)


def test_all_neurons_of_a_position_at_once(contrast):
    """Every neuron of a layer at its contrast mean is the layer replaced whole."""
    trace = contrast.trace

    def edit(activations):
        activations[0, 4] = contrast.replacement[1, 4]

    logits = hooked(trace.model, list(trace.ids), {1: edit})
    found = sweep_layers(read_answer(trace, ANSWER), contrast.replacement)
    effect = found.logit.reshape(3, len(trace))[1, 4]
    assert float(effect) == pytest.approx(
        float(centre(trace.logits[-1])[ANSWER] - centre(logits[0, -1])[ANSWER]), abs=2e-4
    )

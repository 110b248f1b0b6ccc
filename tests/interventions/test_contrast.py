"""Neurons set to their contrast mean: equal to one hooked TransformerLens run per neuron."""

import pytest
import torch

import ffnprobe as fp
from ffnprobe.interventions.choices import choose_neurons
from ffnprobe.interventions.readout import read_answer
from ffnprobe.interventions.sweeps import sweep_layers, sweep_neurons
from ffnprobe.tracing.contrast import contrast_with
from tests.interventions.oracles import hooked, removed

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
    readout = read_answer(trace, ANSWER, convention="folded")
    found = sweep_neurons(
        readout,
        contrast.replacement,
        positions=[position],
        chosen=choose_neurons(trace.model, None),
    )
    effects = torch.stack([layer.logit for layer in found]).reshape(3, 52).double()
    assert effects.abs().mean() > 1e-3
    for layer in range(3):
        values = contrast.replacement[:, position]
        logits = removed(trace.model, list(trace.ids), layer, list(range(52)), [position], values)
        expected = trace.logits[-1, ANSWER].double() - logits[:, -1, ANSWER].double()
        assert torch.allclose(effects[layer], expected, atol=2e-4)


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
    found = sweep_layers(read_answer(trace, ANSWER, convention="folded"), contrast.replacement)
    effect = found.logit.reshape(3, len(trace))[1, 4]
    assert float(effect) == pytest.approx(
        float(trace.logits[-1, ANSWER] - logits[0, -1, ANSWER]), abs=2e-4
    )

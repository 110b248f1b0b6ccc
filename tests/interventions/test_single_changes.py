"""Single changes in one joined batch are the changes one by one."""

import pytest
import torch

import ffnprobe as fp
from ffnprobe.interventions import batches
from ffnprobe.interventions.readout import read_answer
from ffnprobe.interventions.single_changes import sweep_singles

PLACES = [(2, 3), (0, 7), (0, 0), (1, 3), (0, 3), (2, 7), (1, 5), (2, 5)]


def shift(trace, places):
    """Remove neuron 11 + its number at each place, to zero."""
    model = trace.model
    return torch.stack(
        [
            -trace.activations[layer, place, 11 + number] * model.rows[layer, 11 + number]
            for number, (layer, place) in enumerate(places)
        ]
    )


@pytest.mark.parametrize("answer", [280, "the cat"])
def test_joined_is_one_by_one(tiny_trace, answer, monkeypatch):
    readout = read_answer(tiny_trace, answer)
    shifts = shift(tiny_trace, PLACES)
    found = sweep_singles(readout, PLACES, shifts)
    monkeypatch.setattr(batches, "NUMBERS_AT_ONCE", 1000)
    in_parts = sweep_singles(readout, PLACES, shifts)
    for number, (layer, place) in enumerate(PLACES):
        alone = fp.ablate(
            tiny_trace, answer, neurons=[f"L{layer}N{11 + number}"], position=place, replace="zero"
        )
        row = layer, 11 + number
        for one in (found, in_parts):
            assert float(one.logit[number]) == pytest.approx(float(alone.values[row]), abs=1e-5)
            assert float(one.log_probability[number]) == pytest.approx(
                float(alone.log_probability[row]), abs=1e-5
            )
    assert found.logit.abs().max() > 1e-3


def test_what_changes_nothing_is_not_replayed(tiny_trace, monkeypatch):
    readout = read_answer(tiny_trace, 280)
    shifts = torch.zeros(2, tiny_trace.model.config.d_model)
    last = tiny_trace.model.config.layers - 1
    shifts[1] = 1.0  # in the last layer, at a position that is not read
    counted = []
    monkeypatch.setattr("ffnprobe.interventions.single_changes._replay", None)
    found = sweep_singles(
        readout, [(0, 2), (last, 2)], shifts, progress=lambda *count: counted.append(count)
    )
    assert found.logit.tolist() == found.log_probability.tolist() == [0.0, 0.0]

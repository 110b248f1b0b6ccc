"""Variants that join one batch at any layer and position are each what they are by themselves."""

from dataclasses import replace

import pytest
import torch

import ffnprobe as fp
from ffnprobe.interventions import sweeps
from ffnprobe.interventions.replay import read_answer
from ffnprobe.interventions.sweeps import (
    Change,
    replay_changes,
    replay_prompts,
    sweep_changes,
    sweep_moves,
)
from ffnprobe.models.forward import forward
from tests.families.builders import CASES, write_family


def run_changed(trace, group):
    """Run the prompt with a group's activations replaced, by the hooks: the answer's own logits."""
    model = replace(trace.model, hooks=True)

    def change_layer(layer):
        def tap(activations):
            changed = activations.clone()
            for change in group:
                if change.layer == layer:
                    changed[0, change.position, change.neuron] = change.value
            return changed

        return tap

    taps = {("activations", layer): change_layer(layer) for layer in range(model.config.layers)}
    return forward(model, torch.tensor([trace.ids]), taps)[0, -1]


def test_groups_at_different_positions_are_hooked_passes(tiny):
    trace = fp.run(tiny, "the cat sat on the mat")
    end, top = len(trace) - 1, tiny.config.layers - 1
    groups = [
        [Change(0, end, 1, 2.0), Change(top, end, 2, -1.0)],
        [Change(0, 1, 3, 1.5), Change(top, 1, 0, 9.0), Change(top, end, 4, 3.0)],
        [Change(1, 2, 5, -2.0)],
        [Change(top, 2, 5, 7.0)],  # nothing carries this to the end
    ]
    token = int(trace.logits[-1].argmax())
    found = sweep_changes(read_answer(trace, token, convention="folded"), groups)
    clean = run_changed(trace, [])
    for number, group in enumerate(groups):
        changed = run_changed(trace, group)
        assert float(found.logit[number]) == pytest.approx(
            float(clean[token] - changed[token]), abs=1e-5
        )
        lost = clean.log_softmax(-1)[token] - changed.log_softmax(-1)[token]
        assert float(found.log_probability[number]) == pytest.approx(float(lost), abs=1e-5)
        final = replay_changes(read_answer(trace, token), [group])[0]
        logits = read_answer(trace, token).logits(final[None], start=end)[0, 0]
        torch.testing.assert_close(logits, changed, rtol=1e-4, atol=1e-4)
    assert float(found.logit[3]) == 0.0
    assert all(float(value) != 0.0 for value in found.logit[:3])


@pytest.mark.parametrize("case", CASES)
def test_groups_are_hooked_passes_in_every_family(tmp_path, case):
    model = fp.load(write_family(tmp_path / "model", case))
    trace = fp.run(model, [3, 1, 4, 1, 5, 9, 2, 6])
    end, top = len(trace) - 1, model.config.layers - 1
    subject = [Change(0, 2, 3, 1.5), Change(top - 1, 4, 2, -2.0)]
    last = [Change(0, end, 1, 2.0), Change(top, end, 0, -1.5)]
    groups = [subject, [*subject, *last], last, [subject[0], *last]]
    found, answer = sweep_changes(read_answer(trace, 3), groups), 3
    clean = run_changed(trace, [])
    for number, group in enumerate(groups):
        lost = clean.log_softmax(-1)[answer] - run_changed(trace, group).log_softmax(-1)[answer]
        assert float(found.log_probability[number]) == pytest.approx(float(lost), abs=2e-5)
        assert abs(float(lost)) > 1e-4
    # Positions of the answer's later pieces follow the last one.
    check_alone(trace, groups, sweep_changes(read_answer(trace, " the cat"), groups), " the cat")


def test_several_prompts_at_once_are_each_by_itself(tiny, monkeypatch):
    texts = ["the cat sat on the mat", "the basketball court", "Paris", "the cat sat in Paris"]
    readouts = [read_answer(trace, 5) for trace in fp.run(tiny, texts)]
    groups = [
        [[Change(1, 1, 3, 1.5)], [Change(0, 2, 4, 2.0), Change(2, len(r.replay.trace) - 1, 1, -1.0)]]
        if len(r.replay.trace) > 2 else [[], [Change(0, 1, 4, 2.0)]]
        for r in readouts
    ]  # fmt: skip
    wanted = [replay_changes(r, own) for r, own in zip(readouts, groups, strict=True)]
    for at_once in (2**24, 1):
        monkeypatch.setattr(sweeps, "NUMBERS_AT_ONCE", at_once)
        for found, alone in zip(replay_prompts(readouts, groups), wanted, strict=True):
            torch.testing.assert_close(found, alone, rtol=1e-4, atol=1e-4)


def check_alone(trace, groups, found, answer=5):
    """Each group's effect is the one it has in a sweep by itself, and is not nothing."""
    readout = read_answer(trace, answer)
    for number, group in enumerate(groups):
        alone = sweep_changes(readout, [group])
        assert float(found.logit[number]) == pytest.approx(float(alone.logit[0]), abs=1e-5)
        assert abs(float(alone.logit[0])) > 2e-5


PLACES = [(2, 3), (0, 7), (0, 0), (1, 3), (0, 3), (2, 7), (1, 5), (2, 5)]


def shift(trace, places):
    """Remove neuron 11 + its number at each place, to zero."""
    model = trace.model
    return torch.stack(
        [
            -trace.activations[layer, place, 11 + number] * model.rows[layer][11 + number]
            for number, (layer, place) in enumerate(places)
        ]
    )[:, None]


@pytest.mark.parametrize("answer", [280, "the cat"])
def test_joined_is_one_by_one(tiny_trace, answer, monkeypatch):
    readout = read_answer(tiny_trace, answer)
    shifts = shift(tiny_trace, PLACES)
    found = sweep_moves(readout, PLACES, shifts)
    monkeypatch.setattr(sweeps, "NUMBERS_AT_ONCE", 1000)
    in_parts = sweep_moves(readout, PLACES, shifts)
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
    shifts = torch.zeros(2, 1, tiny_trace.model.config.d_model)
    last = tiny_trace.model.config.layers - 1
    shifts[1] = 1.0  # in the last layer, at a position that is not read
    counted = []
    monkeypatch.setattr("ffnprobe.interventions.sweeps._replay", None)
    found = sweep_moves(
        readout, [(0, 2), (last, 2)], shifts, progress=lambda *count: counted.append(count)
    )
    assert found.logit.tolist() == found.log_probability.tolist() == [0.0, 0.0]

"""Groups of changes that begin at different positions are replayed together, each as if by itself."""

import pytest
import torch

import ffnprobe as fp
from ffnprobe.interventions.readout import read_answer
from ffnprobe.interventions.sweeps import Change, Forks, sweep_changes
from ffnprobe.models.passes import forward


def run_changed(trace, group):
    """Run the prompt with a group's activations replaced, by the hooks: the answer's own logits."""
    model = trace.model

    def replace(layer):
        def tap(activations):
            changed = activations.clone()
            for change in group:
                if change.layer == layer:
                    changed[0, change.position, change.neuron] = change.value
            return changed

        return tap

    taps = {("activations", layer): replace(layer) for layer in range(model.config.layers)}
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
    assert float(found.logit[3]) == 0.0
    assert all(float(value) != 0.0 for value in found.logit[:3])


def test_groups_that_begin_alike_share_rows_and_are_as_if_alone(tiny, monkeypatch):
    trace = fp.run(tiny, "the cat sat on the mat")
    end, top = len(trace) - 1, tiny.config.layers - 1
    first, second = Change(0, 1, 3, 1.5), Change(top, end, 4, 3.0)
    groups = [[first], [second, first], [second], [first, second], [Change(0, 1, 3, 2.5)]]
    readout = read_answer(trace, 5)
    rows: list[list[int]] = []
    divide = Forks.divide

    def watch(self, layer):
        rows.append(divide(self, layer))
        return rows[-1]

    monkeypatch.setattr(Forks, "divide", watch)
    found = sweep_changes(readout, groups)
    # In the first layer two groups and the clean row; in the last one more, and none twice.
    begun = [r for r in rows if len(r) > 2]
    assert [len(r) for r in begun] == [3] * top + [4]
    monkeypatch.undo()
    for number, group in enumerate(groups):
        alone = sweep_changes(readout, [group])
        assert float(found.logit[number]) == pytest.approx(float(alone.logit[0]), abs=1e-5)
        assert abs(float(alone.logit[0])) > 1e-4
    assert found.logit[1] == found.logit[3]

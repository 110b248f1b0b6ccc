"""Groups of changes that begin at different positions are replayed together, each as if by itself."""

import pytest
import torch

import ffnprobe as fp
from ffnprobe.interventions.group_changes import sweep_changes
from ffnprobe.interventions.readout import read_answer
from ffnprobe.interventions.replay import Replay
from ffnprobe.interventions.sweeps import Change
from ffnprobe.models.passes import forward
from tests.families.builders import CASES, write_family


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


def test_groups_that_begin_alike_share_a_row_until_they_differ(tiny, count_rows):
    trace = fp.run(tiny, "the cat sat on the mat")
    top = tiny.config.layers - 1
    first, second = Change(0, 1, 3, 1.5), Change(top - 1, 1, 4, 3.0)
    groups = [[first], [second, first], [second], [first, second], [Change(0, 1, 3, 2.5)]]
    found = sweep_changes(read_answer(trace, 5), groups)
    # The clean row, both values of the first neuron; with the second neuron two more, and none twice.
    assert [rows for (rows,) in count_rows] == [3] * (top - 1) + [5] * 2
    check_alone(trace, groups, found)
    assert found.logit[1] == found.logit[3]


def test_a_group_with_more_changes_at_the_end_is_replayed_from_there(tiny, count_rows):
    trace = fp.run(tiny, "the cat sat on the mat")
    end, layers = len(trace) - 1, tiny.config.layers
    earlier = [Change(0, 1, 3, 1.5), Change(1, 2, 6, -2.0)]
    groups = [earlier, [Change(0, end, 4, 3.0), *earlier], [Change(0, end, 4, 3.0)]]
    found = sweep_changes(read_answer(trace, 5), groups)
    # By position: the clean row and one from 1 on; the clean row and one at the end; the twin's two.
    assert count_rows == [(2, 2, 2)] * layers
    check_alone(trace, groups, found)


@pytest.mark.parametrize("case", CASES)
def test_twins_are_hooked_passes_in_every_family(tmp_path, case):
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
    # Positions of the answer's later pieces follow the last one, where the twin begins.
    check_alone(trace, groups, sweep_changes(read_answer(trace, " the cat"), groups), " the cat")


@pytest.fixture
def count_rows(monkeypatch):
    """How many rows each stream of a layer has, layer by layer."""
    counted, advance = [], Replay.advance_all

    def watch(self, streams, *given, **named):
        counted.append(tuple(len(stream) for stream in streams))
        return advance(self, streams, *given, **named)

    monkeypatch.setattr(Replay, "advance_all", watch)
    return counted


def check_alone(trace, groups, found, answer=5):
    """Each group's effect is the one it has in a sweep by itself, and is not nothing."""
    readout = read_answer(trace, answer)
    for number, group in enumerate(groups):
        alone = sweep_changes(readout, [group])
        assert float(found.logit[number]) == pytest.approx(float(alone.logit[0]), abs=1e-5)
        assert abs(float(alone.logit[0])) > 2e-5

"""Ctrl-C in the middle of a run by the hooks: what it leaves on the network changes no later run."""

import linecache
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformer_lens

import ffnprobe as fp
from ffnprobe.models import bridge

TEXT, OTHER = "the cat sat", "the dog ran to the court in Paris"
# Where hooks are put on and taken off; the long test interrupts every line there is.
NEAR = (bridge.__file__, str(Path(transformer_lens.__file__).parent / "hook_points.py"))


@pytest.fixture
def hooked(tiny):
    """A model with a network of its own, for what interrupts leave on it."""
    return replace(tiny, hooks=True)


def trace_lines(see):
    """Run the text; `see` is told each line before it is run, by its file, number and how often it came."""
    counts: dict[tuple[str, int], int] = {}

    def trace(frame, event, _):
        if event == "line":
            line = frame.f_code.co_filename, frame.f_lineno
            counts[line] = counts.get(line, 0) + 1
            see(line, counts[line])
        return trace

    def run(model):
        sys.settrace(trace)
        try:
            fp.run(model, TEXT)
        finally:
            sys.settrace(None)

    return run, counts


def check_interrupts(model, is_chosen):
    """Interrupt a run at the first and at the last time of each line; return how many runs were."""
    wanted = fp.run(model, OTHER)
    run, counts = trace_lines(lambda line, count: None)
    run(model)
    moments = [
        (line, n) for line, last in counts.items() if is_chosen(line)
        for n in ({1} if _is_with(line) else {1, last})
    ]  # fmt: skip
    for moment in moments:

        def interrupt(line, count, moment=moment):
            if (line, count) == moment:
                sys.settrace(None)
                raise KeyboardInterrupt

        with suppress(KeyboardInterrupt):  # Python drops one that comes while an iterator is closed
            trace_lines(interrupt)[0](model)
        found = fp.run(model, OTHER)
        assert torch.equal(found.logits, wanted.logits), moment
        assert torch.equal(found.activations, wanted.activations), moment
    return len(moments)


def _is_with(line):
    """Say if a line begins a block that ends at it, too: a trace sees that moment, Ctrl-C never does."""
    return linecache.getline(*line).lstrip().startswith("with ")


def test_a_run_after_one_that_was_interrupted_is_right(hooked):
    assert check_interrupts(hooked, lambda line: line[0] in NEAR) > 50


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_run_after_one_that_was_interrupted_at_any_line_is_right(hooked):
    assert check_interrupts(hooked, lambda line: True) > 2000


def test_what_an_interrupt_left_does_not_change_the_users_own_runs(hooked, monkeypatch):
    ids = torch.tensor([[1, 2, 3, 4, 5]])
    wanted = hooked.bridge(ids)
    own: list[int] = []
    point = hooked.bridge.blocks[0].mlp.hook_post
    handle = point.add_hook(lambda tensor, hook: own.append(tensor.shape[1]))

    def stay(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(hooked.bridge), "_remove_temporary_hook", stay)
        with pytest.raises(KeyboardInterrupt):
            bridge.run_hooked(hooked, ids[:, :3], {("activations", 0): torch.zeros_like})
    assert torch.equal(hooked.bridge(ids), wanted)
    fp.run(hooked, TEXT)
    handle.hook.remove()
    assert own[:2] == [3, 5]
    assert len(own) == 3

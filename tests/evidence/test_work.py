"""An explanation runs nothing twice: one forward pass and one replay for each prompt."""

import pytest

import ffnprobe as fp
from ffnprobe.interventions.replay import Replay
from ffnprobe.models import forward
from tests.conftest import JORDAN

OTHERS = ["Tiger Woods plays the sport of", "Babe Ruth plays the sport of"]


@pytest.fixture
def ran(monkeypatch):
    """The token ids of every prompt that is run, in order."""
    found, plain = [], forward.run_steps

    def watch(model, ids, taps):
        found.extend(map(tuple, ids.tolist()))
        return plain(model, ids, taps)

    monkeypatch.setattr(forward, "run_steps", watch)
    return found


@pytest.fixture
def replayed(monkeypatch):
    """The token ids of every prompt that a replay is made of."""
    found, plain = [], Replay.__init__

    def watch(self, trace):
        found.append(trace.ids)
        plain(self, trace)

    monkeypatch.setattr(Replay, "__init__", watch)
    return found


def test_each_prompt_is_run_once_and_replayed_once(pocket, ran, replayed):
    found = fp.explain(pocket, JORDAN, " basketball", contrast=OTHERS)
    prompts = [found.question.trace, *found.question.contrast.others]
    assert sorted(ran) == sorted(replayed) == sorted(prompt.ids for prompt in prompts)


def test_others_that_are_found_are_run_once(pocket, ran, replayed):
    others = fp.explain(pocket, JORDAN, " basketball").question.contrast.others
    assert len(others) == 12
    assert len(ran) == len(set(ran)) == 1 + len(others)
    assert sorted(replayed) == sorted(ran)


def test_an_answer_of_two_tokens_is_run_once_with_its_prompt(pocket, ran, replayed):
    found = fp.explain(pocket, JORDAN, " basketball and", contrast=OTHERS)
    prompt = found.question.trace.ids
    assert len(ran) == 1 + len(OTHERS)
    assert ran[0][: len(prompt)] == prompt
    assert len(ran[0]) == len(prompt) + 1
    assert replayed[0] == ran[0]
    # What it is cut out of is what the prompt gives by itself.
    alone = fp.run(pocket, JORDAN)
    assert alone.logits == pytest.approx(found.question.trace.logits, abs=1e-4)
    assert alone.patterns.shape == found.question.trace.patterns.shape
    assert alone.prompt == found.question.trace.prompt
    assert list(found.question.trace.predictions(3).token) == list(alone.predictions(3).token)

"""Published values for OpenAI's GPT-2, wherever its weights are."""

import json
import os
from pathlib import Path

import pytest

import ffnprobe as fp
from ffnprobe.models.sources import find_source

pytestmark = [pytest.mark.gpt2, pytest.mark.shared]


@pytest.fixture(scope="module")
def published(shared: Path) -> dict:
    return json.loads((shared / "golden" / "gpt2.json").read_text())["gpt2"]


@pytest.fixture(scope="module")
def gpt2() -> fp.Model:
    """OpenAI's GPT-2 small, from a folder or the hub's cache; nothing is downloaded."""
    folder = os.environ.get("FFNPROBE_GPT2")
    if folder:
        return fp.load(folder)
    if not find_source("gpt2").is_here():
        pytest.skip("needs OpenAI's GPT-2: no FFNPROBE_GPT2 folder, and not in the hub's cache")
    return fp.load("gpt2")


def test_the_digit_neuron_fires_as_published(gpt2, published):
    known = published["L9N652"]
    trace = fp.run(gpt2, known["text"], bos=known["prepend_bos"])
    assert trace.neuron("L9N652").activation.tolist() == pytest.approx(known["post"], abs=2e-3)


@pytest.fixture(scope="module")
def shops(gpt2, published) -> fp.Trace:
    return fp.run(gpt2, published["dla"]["prompt"])


def test_the_strongest_neurons_push_as_published(shops, published):
    for answer, (name, push) in published["dla"]["top_abs_neuron"].items():
        pushes = fp.attribute(shops, answer)
        both = [pushes.top(1), pushes.against(1)]
        strongest = max(both, key=lambda table: abs(table.push[0]))
        assert (strongest.name[0], strongest.push[0]) == (name, pytest.approx(push, abs=2e-3))


def test_heads_push_mary_over_john_as_published(shops, published):
    parts = fp.attribute(shops, " Mary", versus=" John").by_part().set_index("part").push
    for head, push in published["dla"]["heads_mary_minus_john"].items():
        assert parts[head] == pytest.approx(push, abs=2e-3)

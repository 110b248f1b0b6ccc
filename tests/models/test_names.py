"""Neurons and layers are found by name, or the model says which it has."""

import pytest

import ffnprobe as fp
from ffnprobe.errors import NameNotUnderstood, OptionRefused


def test_names_are_expanded_in_the_order_given(tiny: fp.Model) -> None:
    found = tiny.find_neurons(["L1N3-5", fp.NeuronId(0, 7), "L1N4"])
    assert list(map(str, found)) == ["L1N3", "L1N4", "L1N5", "L0N7"]
    assert tiny.find_neurons("L2") == [fp.NeuronId(2, n) for n in range(tiny.config.d_mlp)]


def test_a_neuron_that_does_not_exist_is_refused_with_what_there_is(tiny: fp.Model) -> None:
    with pytest.raises(NameNotUnderstood, match="has neurons L0N0–L0N51"):
        tiny.find_neuron("L0N52")
    with pytest.raises(NameNotUnderstood, match="has layers L0–L2"):
        tiny.find_neurons(["L0N1", "L3"])


def test_layers_are_listed_once_and_in_order(tiny: fp.Model) -> None:
    assert tiny.find_layers(None) == [0, 1, 2]
    assert tiny.find_layers("2,0-1") == tiny.find_layers([1, 2, 0, 1]) == [0, 1, 2]
    with pytest.raises(OptionRefused, match="no layer is named"):
        tiny.find_layers([])
    with pytest.raises(NameNotUnderstood, match="has layers L0–L2"):
        tiny.find_layers([3])

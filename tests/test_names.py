import pytest
from hypothesis import given
from hypothesis import strategies as st

import ffnprobe as fp
from ffnprobe.errors import NameNotUnderstood
from ffnprobe.names import NeuronId, expand, expand_layers

SIZE = {"layers": 6, "neurons": 768, "model": "pocket"}


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_printed_name_reads_back(layer, neuron):
    assert NeuronId.parse(str(NeuronId(layer, neuron))) == NeuronId(layer, neuron)


def test_names_sort_by_layer_then_neuron():
    names = [NeuronId(10, 0), NeuronId(2, 11), NeuronId(2, 3)]
    assert [str(name) for name in sorted(names)] == ["L2N3", "L2N11", "L10N0"]


@pytest.mark.parametrize(
    ("text", "count", "first", "last"),
    [
        ("L3N12", 1, "L3N12", "L3N12"),
        ("L3", 768, "L3N0", "L3N767"),
        ("L3-L5", 3 * 768, "L3N0", "L5N767"),
        ("L3N5-L3N9", 5, "L3N5", "L3N9"),
        ("L3N5-9", 5, "L3N5", "L3N9"),
    ],
)
def test_a_name_stands_for_its_neurons(text, count, first, last):
    found = expand(text, **SIZE)
    assert (len(found), str(found[0]), str(found[-1])) == (count, first, last)


def test_several_names_give_each_neuron_once():
    found = fp.load("pocket").find_neurons(["L0N3", "L0N1-L0N3"])
    assert [str(name) for name in found] == ["L0N3", "L0N1", "L0N2"]


def test_layers_are_listed_once_and_in_order():
    assert expand_layers("5,L1-L2,1", layers=6) == [1, 2, 5]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("L12N5", "L12N5: pocket has layers L0–L5."),
        ("L5N768", "L5N768: pocket has neurons L5N0–L5N767."),
        ("L6", "L6: pocket has layers L0–L5."),
        ("L3N9-L3N5", '"L3N9-L3N5" is empty: it ends before it begins.'),
        ("L5-L3", '"L5-L3" is empty: it ends before it begins.'),
        ("L3N5-L4N2", '"L3N5-L4N2" runs over two layers.\n  try: L3-L4'),
        ("L3N5-", '"L3N5-" is a range without an end.'),
        ("3N5", '"3N5" is not the name of a neuron.\n  try: a neuron is "L3N12"'),
        ("L-1N5", "is not the name of a neuron"),
        ("l3n5", "is not the name of a neuron"),
        ("L٣N٥", "is not the name of a neuron"),
        ("", "is not the name of a neuron"),
    ],
)
def test_a_name_that_names_nothing_is_refused_in_words(text, words):
    with pytest.raises(NameNotUnderstood) as caught:
        expand(text, **SIZE)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [("7", "L7: pocket has layers L0–L5."), ("3-1", "is empty"), ("x", "is not a layer")],
)
def test_layers_that_are_not_there_are_refused(text, words):
    with pytest.raises(NameNotUnderstood, match=words):
        expand_layers(text, layers=6, model="pocket")

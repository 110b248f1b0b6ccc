"""Patching: equal to TransformerLens given the other prompt's activations, and shares that make sense."""

import pytest
import torch
from torch import Tensor

import ffnprobe as fp
from ffnprobe.errors import FfnProbeError
from tests.interventions.oracles import hooked

ANSWER, OTHER = 280, 11


@pytest.fixture(scope="module")
def pair(tiny: fp.Model) -> tuple[fp.Trace, fp.Trace]:
    return fp.run(tiny, [5, 6, 7, 8, 9]), fp.run(tiny, [5, 90, 7, 8, 9])


def difference(logits: Tensor) -> float:
    return float(logits[-1, ANSWER] - logits[-1, OTHER])


def patched(source: fp.Trace, target: fp.Trace, cells: list[tuple[int, object, object]]) -> float:
    """Return the share carried by (layer, positions, neurons), by TransformerLens."""

    def edit_of(layer: int, positions: object, neurons: object):
        def edit(activations: Tensor) -> None:
            activations[0][positions, neurons] = source.activations[layer][positions, neurons]

        return edit

    edits = {layer: edit_of(layer, positions, neurons) for layer, positions, neurons in cells}
    logits = hooked(target.model, list(target.ids), edits)[0]
    ends = difference(source.logits), difference(target.logits)
    return (difference(logits) - ends[1]) / (ends[0] - ends[1])


@pytest.mark.parametrize("position", [2, "all"])
def test_neurons_one_by_one_and_together(pair: tuple[fp.Trace, fp.Trace], position: object) -> None:
    places = slice(None) if position == "all" else position
    found = fp.patch(*pair, ANSWER, OTHER, position=position)
    for layer, neuron in ((0, 0), (0, 51), (1, 20), (2, 33)):
        wanted = patched(*pair, [(layer, places, neuron)])
        assert float(found.carried[layer, neuron]) == pytest.approx(wanted, abs=2e-4)
    every = [(layer, places, slice(None)) for layer in range(3)]
    assert found.together == pytest.approx(patched(*pair, every), abs=2e-4)
    assert found.ends.source == pytest.approx(difference(pair[0].logits), abs=1e-3)
    assert found.top(1).carried[0] == pytest.approx(float(found.carried.max()))


def test_map_of_layers(pair: tuple[fp.Trace, fp.Trace]) -> None:
    found = fp.patch_layers(*pair, ANSWER, OTHER)
    for layer in range(3):
        for position in range(6):
            wanted = patched(*pair, [(layer, position, slice(None))])
            assert float(found.carried[layer, position]) == pytest.approx(wanted, abs=2e-4)
    # Up to the token that differs, the two prompts are one.
    assert found.carried[:, :2].abs().max() < 1e-4
    table = found.table
    assert list(table.columns) == ["layer", "position", "token_source", "token_target", "carried"]
    assert (table.token_source != table.token_target).sum() == 3


def test_what_is_not_a_neuron_is_not_carried(tiny: fp.Model) -> None:
    """Where only the last token differs, its embedding and attention carry the rest."""
    source, target = fp.run(tiny, [5, 6, 7]), fp.run(tiny, [5, 6, 90])
    found = fp.patch(source, target, ANSWER, OTHER)
    chosen = fp.patch(source, target, ANSWER, OTHER, neurons=["L0N3", "L2N7"])
    assert found.together != pytest.approx(1, abs=1e-3)
    assert torch.equal(
        chosen.carried.isnan().logical_not().nonzero(), torch.tensor([[0, 3], [2, 7]])
    )
    assert "activations_from" in chosen.provenance.settings
    assert tiny.is_unchanged()


def test_bad_input_is_named(tiny: fp.Model, pocket: fp.Model, tiny_trace: fp.Trace) -> None:
    source, longer = fp.run(tiny, [5, 6, 7]), fp.run(tiny, [5, 6, 7, 8])
    with pytest.raises(FfnProbeError, match="the prompts are 4 and 5 tokens"):
        fp.patch(source, longer, ANSWER, OTHER)
    with pytest.raises(
        FfnProbeError, match=r"both prompts favour the answer alike .* nothing to carry"
    ):
        fp.patch_layers(source, source, ANSWER, OTHER)
    with pytest.raises(FfnProbeError, match="were run on two models"):
        fp.patch(source, fp.run(pocket, [5, 6, 7]), ANSWER, OTHER)
    with pytest.raises(FfnProbeError, match=r"L9N0: .* has layers L0–L2"):
        fp.patch(source, fp.run(tiny, [5, 6, 9]), ANSWER, OTHER, neurons=["L9N0"])

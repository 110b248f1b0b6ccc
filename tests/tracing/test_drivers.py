"""What asked a neuron's question: the account of a score, and which positions heads read from."""

import pytest
import torch

import ffnprobe as fp
from ffnprobe.errors import AccountNotClosed, NameNotUnderstood, OptionRefused
from tests.builders import TINY, random_weights, write_model
from tests.tracing.oracles import compatible

TEXT = "the cat sat on the basketball court"
MODELS = ["tiny", "pocket", pytest.param("small", marks=pytest.mark.shared)]


@pytest.fixture(params=MODELS)
def trace(request):
    return fp.run(request.getfixturevalue(request.param), TEXT)


def test_drives_add_up_to_the_score(trace):
    last = trace.model.config.layers - 1
    for layer, neuron, position in [(0, 3, -1), (1, 0, 0), (last, 11, 4)]:
        drivers = fp.drivers(trace, f"L{layer}N{neuron}", position=position)
        parts = drivers.by_part()
        score = float(trace.scores[layer, position, neuron])
        assert parts.drive.sum() == pytest.approx(score, abs=1e-3)
        assert drivers.score == score
        assert abs(drivers.remainder) < 1e-3
        assert parts[parts.kind == "head"].layer.max() == layer
        assert (parts.kind == "MLP bias").sum() == layer
        assert parts.iloc[-1].part == "question bias"


@torch.no_grad()
def test_drives_of_neurons_equal_transformer_lenss(trace):
    """Their neuron stack as the input of a layer's MLP, along the question."""
    bridge, c = compatible(trace.model), trace.model.config
    _, stored = bridge.run_with_cache(torch.tensor([trace.ids]))
    layer, neuron = c.layers - 1, 5
    question = bridge.blocks[layer].mlp.W_in[:, neuron]
    theirs = stored.stack_neuron_results(
        layer, pos_slice=-1, apply_ln=True, project_output_onto=question, mlp_input=True
    )
    ours = fp.drivers(trace, f"L{layer}N{neuron}", position=-1).account.neurons
    torch.testing.assert_close(ours, theirs.reshape(layer, c.d_mlp), rtol=1e-3, atol=1e-4)


def test_a_heads_drive_is_shared_among_the_positions_it_read(trace):
    drivers = fp.drivers(trace, fp.NeuronId(1, 7), position=5)
    count = 2 * trace.model.config.heads * 6
    read = drivers.heads(count)
    assert list(read.columns) == ["part", "layer", "head", "position", "token", "pattern", "drive"]
    assert read.drive.abs().is_monotonic_decreasing
    shared = read.groupby("part").drive.sum()
    parts = drivers.by_part().set_index("part").drive
    for name, value in shared.items():
        assert value == pytest.approx(parts[name], abs=1e-4)
    assert read.groupby("part")["pattern"].sum().tolist() == pytest.approx([1.0] * len(shared))
    assert read.position.max() == 5
    row = read.iloc[0]
    assert row.token == trace.tokens[row.position]
    assert row["pattern"] == pytest.approx(
        float(trace.patterns[row.layer, row["head"], 5, row.position])
    )


def test_a_planted_asker_is_found(tmp_path):
    """L2N4 asks for what L0N6 answers, and nothing else answers it so loudly."""
    weights = random_weights(TINY, size=0.05)
    said = torch.randn(TINY.d_model, generator=torch.Generator().manual_seed(3))
    weights["h.0.mlp.c_fc.bias"][6] = 4.0
    weights["h.0.mlp.c_proj.weight"][6] = said - said.mean()
    weights["h.2.mlp.c_fc.weight"][:, 4] = said - said.mean()
    trace = fp.run(fp.load(write_model(tmp_path, TINY, weights)), TEXT)
    top = fp.drivers(trace, "L2N4").top(3)
    assert list(top.columns[:5]) == ["name", "layer", "neuron", "activation", "drive"]
    assert top.name[0] == "L0N6"
    assert top.drive[0] > 10 * abs(top.drive[1])


def test_provenance_and_display(tiny_trace):
    drivers = fp.drivers(tiny_trace, "L1N7", position=2)
    assert (drivers.provenance.position, drivers.provenance.settings) == (2, {"drivers_of": "L1N7"})
    assert "L1N7 at" in drivers._repr_html_()


def test_what_cannot_be_asked_is_refused(tiny, tiny_trace):
    with pytest.raises(NameNotUnderstood, match=r"L9N0: .* has layers L0–L2"):
        fp.drivers(tiny_trace, "L9N0")
    with pytest.raises(NameNotUnderstood, match='"basketball" is not the name of a neuron'):
        fp.drivers(tiny_trace, "basketball")
    with pytest.raises(OptionRefused, match="position 50 is outside the prompt"):
        fp.drivers(tiny_trace, "L1N7", position=50)
    with pytest.raises(OptionRefused, match="L0N7 is in the first layer: no neuron comes before"):
        fp.drivers(tiny_trace, "L0N7").top(3)
    with pytest.raises(OptionRefused, match="top = 53: there are 52 earlier neurons"):
        fp.drivers(tiny_trace, "L1N7").top(53)
    with pytest.raises(OptionRefused, match="run without attention patterns"):
        fp.drivers(fp.run(tiny, TEXT, patterns=False), "L1N7").heads()


def test_weights_changed_underneath_are_seen(tmp_path):
    model = fp.load(write_model(tmp_path))
    trace = fp.run(model, TEXT)
    model.weights["h.0.attn.c_proj.weight"].mul_(1.5)
    with pytest.raises(AccountNotClosed, match=r"the score of L1N7 is \S+ in the model, and its"):
        fp.drivers(trace, "L1N7")

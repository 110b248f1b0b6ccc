"""Each token's way through one FFN, alone."""

import pytest
import torch

import ffnprobe as fp
from ffnprobe.errors import AccountNotClosed, NameNotUnderstood, OptionRefused
from tests.builders import write_model
from tests.tracing.oracles import hugging_face

TEXT = "the cat sat on the basketball court"


@pytest.fixture(params=["tiny", "pocket", pytest.param("small", marks=pytest.mark.shared)])
def trace(request):
    return fp.run(request.getfixturevalue(request.param), TEXT)


@torch.no_grad()
def test_stages_are_what_hugging_faces_ffn_does(trace):
    network = hugging_face(trace.model).transformer
    seen = network(torch.tensor([trace.ids]), output_hidden_states=True)
    for layer in (0, trace.model.config.layers - 1):
        stages, block = fp.stages(trace, layer), network.h[layer]
        before = stages.before
        output = block.mlp(block.ln_2(before))
        scores = block.mlp.c_fc(block.ln_2(before))
        torch.testing.assert_close(stages.scores, scores, rtol=1e-4, atol=2e-4)
        torch.testing.assert_close(stages.activations, block.mlp.act(scores), rtol=1e-4, atol=2e-4)
        torch.testing.assert_close(stages.output, output, rtol=1e-4, atol=2e-4)
        if layer == 0:
            torch.testing.assert_close(stages.after, seen.hidden_states[1][0], rtol=1e-4, atol=5e-4)
        torch.testing.assert_close(stages.scores, trace.scores[layer], rtol=1e-4, atol=2e-4)
        assert torch.equal(stages.pattern, trace.patterns[layer])


def test_permuting_positions_permutes_the_columns(trace):
    stages = fp.stages(trace, 1)
    order = torch.randperm(len(trace), generator=torch.Generator().manual_seed(0)).tolist()
    moved = stages.shuffled(order)
    assert moved.tokens == tuple(trace.tokens[place] for place in order)
    for stage in ("before", "input", "scores", "activations", "output", "after"):
        torch.testing.assert_close(
            getattr(moved, stage), getattr(stages, stage)[order], rtol=1e-5, atol=1e-5
        )
    assert moved.pattern is None


def test_the_table_has_a_row_a_token(tiny_trace):
    stages = fp.stages(tiny_trace, 1)
    table = stages.table
    assert table.token.tolist() == list(tiny_trace.tokens)
    assert table.activation.tolist() == pytest.approx(
        tiny_trace.activations[1].amax(-1).tolist(), abs=1e-4
    )
    number = int(tiny_trace.activations[1, 3].argmax())
    assert table.strongest[3] == f"L1N{number}"
    assert (table["reads"] <= table.position).all()
    assert table.weight[0] == pytest.approx(1)
    assert table.output.tolist() == pytest.approx(stages.output.norm(dim=-1).tolist())
    assert stages.provenance.settings == {"layer": 1}
    assert "L1 on &lt;|endoftext|&gt;" in stages._repr_html_()


def test_without_patterns_the_table_has_no_attention(tiny):
    table = fp.stages(fp.run(tiny, TEXT, patterns=False), 2).table
    assert "reads" not in table


def test_what_cannot_be_asked_is_refused(tiny_trace):
    for layer in (3, -1):
        with pytest.raises(NameNotUnderstood, match=f"L{layer}: .* has layers L0–L2"):
            fp.stages(tiny_trace, layer)
    with pytest.raises(OptionRefused, match=r"\[0, 0\] is not an order of \d+ positions"):
        fp.stages(tiny_trace, 0).shuffled([0, 0])


def test_weights_changed_underneath_are_seen(tmp_path):
    model = fp.load(write_model(tmp_path))
    trace = fp.run(model, TEXT)
    model.weights["h.1.mlp.c_proj.bias"].add_(1)
    with pytest.raises(AccountNotClosed, match="the stream after L1, where they differ most, is"):
        fp.stages(trace, 1)

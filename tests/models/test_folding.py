"""Folded weights against TransformerLens's own folding, and against direct arithmetic."""

import pytest
import torch

import ffnprobe as fp
from ffnprobe.errors import ModelNotLoaded
from ffnprobe.models.folding import check_centred, fold_reader
from ffnprobe.models.step import activate_neurons
from tests.tracing.oracles import compatible


def test_folded_weights_equal_transformer_lens_up_to_centring(tiny):
    bridge = compatible(tiny)
    for layer, block in enumerate(bridge.blocks):
        theirs = block.mlp.W_in.T
        torch.testing.assert_close(
            tiny.questions[layer], theirs - theirs.mean(-1, keepdim=True), rtol=1e-4, atol=1e-5
        )
        torch.testing.assert_close(
            tiny.question_biases[layer], block.mlp.b_in, rtol=1e-4, atol=1e-5
        )
        # Their answers are also centred over d_model, which nothing downstream can see.
        ours = tiny.answers[layer]
        torch.testing.assert_close(
            ours - ours.mean(-1, keepdim=True), block.mlp.W_out, rtol=1e-4, atol=1e-5
        )
    theirs = bridge.W_U.T - bridge.W_U.T.mean(-1, keepdim=True)
    ours = tiny.unembedding - tiny.mean_unembedding
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    ours = tiny.unembedding_bias - tiny.unembedding_bias.mean()
    torch.testing.assert_close(ours, bridge.b_U - bridge.b_U.mean(), rtol=1e-4, atol=1e-4)


def test_folding_changes_nothing_it_was_given():
    weight, bias = torch.randn(7, 11), torch.randn(11)
    gain, shift = torch.randn(7), torch.randn(7)
    kept = [tensor.clone() for tensor in (weight, bias, gain, shift)]
    rows, folded = fold_reader(weight, bias, gain, shift)
    assert all(torch.equal(a, b) for a, b in zip((weight, bias, gain, shift), kept, strict=True))
    stream = torch.randn(7, dtype=torch.float64)
    normed = (stream - stream.mean()) / stream.std(correction=0)
    direct = (normed * gain + shift) @ weight.double() + bias
    torch.testing.assert_close(rows.double() @ normed + folded, direct, rtol=1e-5, atol=1e-5)


def test_a_row_off_centre_is_refused():
    rows = torch.randn(5, 8)
    check_centred(rows - rows.mean(-1, keepdim=True), name="questions")
    with pytest.raises(ModelNotLoaded, match="questions: a folded row is off centre"):
        check_centred(rows + 0.1, name="questions")


@pytest.mark.parametrize("activation", ["gelu_new", "gelu", "relu", "silu"])
def test_every_activation_function_is_the_models_own(activation, tmp_path):
    from dataclasses import replace

    from tests.builders import TINY, write_model

    model = fp.load(write_model(tmp_path, replace(TINY, activation=activation)))
    trace = fp.run(model, "the cat sat")
    torch.testing.assert_close(
        activate_neurons(model, trace.scores, None), trace.activations, rtol=1e-5, atol=1e-6
    )

"""Paths through attention close on every family: shared keys, windows, post-norms, parallel layers."""

import pytest

import ffnprobe as fp
from ffnprobe.tracing.attention import KINDS

ANSWER = 17


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_every_head_closes(trace, depth):
    paths = fp.paths(trace, ANSWER, depth=depth)
    heads = fp.attribute(trace, ANSWER).account.heads
    table = paths.by_head()
    assert table[table.step == 1].push.tolist() == pytest.approx(heads.ravel().tolist(), abs=1e-3)
    assert table[list(KINDS)].sum(axis=1).tolist() == pytest.approx(table.push.tolist(), abs=1e-3)
    assert paths.by_part().push.sum() == pytest.approx(float(heads.sum()), abs=1e-3)
    assert float(paths.neurons.sum()) == pytest.approx(
        float(paths.by_position().neurons.sum()), abs=1e-3
    )


def test_an_answer_of_several_tokens_closes(trace):
    answer = " the cat"
    pieces = fp.attribute(trace, answer).pieces
    assert len(pieces) > 1
    found = fp.paths(trace, answer, depth=2)
    heads = sum(float(piece.account.heads.double().sum()) for piece in pieces)
    assert found.push == pytest.approx(heads, abs=1e-4)
    assert found.by_part().push.sum() == pytest.approx(heads, abs=1e-3)
    assert sum(piece.push for piece in found.pieces) == pytest.approx(heads, abs=1e-4)


def test_a_neuron_is_carried_by_the_heads_that_carry_its_answer(trace):
    """One neuron, head by head, from the folded weights in float64."""
    paths, model = fp.paths(trace, ANSWER, depth=1), trace.model
    below, neuron, source = 0, 33, len(trace) - 2
    part = trace.amounts[below, source, neuron].double() * model.answers[below, neuron].double()
    direction = (model.unembedding[ANSWER] - model.mean_unembedding).double()
    expected = {}
    for layer in range(1, 3):
        a = model.attention[layer]
        stream = model.centre(trace.before_attention[layer, source].double())
        scale = (stream.square().mean() + model.config.eps).sqrt()
        for head in range(model.config.heads):
            value = a.value[head * model.config.kv_heads // model.config.heads].double() @ part
            written = value @ a.out[head].double() / scale
            if a.post_gain is not None:
                written = written * a.post_gain.double() / trace.attention_post_scales[layer, -1]
            push = trace.patterns[layer, head, -1, source] * (written @ direction)
            expected[f"L{layer}H{head}"] = float(push / trace.final_scale[-1])
    table = paths.carriers(fp.NeuronId(below, neuron), source)
    assert dict(zip(table.part, table.push, strict=True)) == pytest.approx(expected, abs=1e-5)

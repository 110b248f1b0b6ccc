"""Paths through attention: equal to loops by hand over raw weights, and closed for every head."""

from dataclasses import replace

import pytest
import torch

import ffnprobe as fp
from ffnprobe.errors import AccountNotClosed, OptionRefused, TokenNotFound
from ffnprobe.tracing.attention import KINDS

ANSWER, OTHER = 17, 230
NEURONS, HEADS = KINDS.index("neurons"), KINDS.index("heads")


@pytest.fixture(scope="module")
def found(tiny_trace):
    return fp.paths(tiny_trace, ANSWER, depth=1)


def weights_of(model, layer):
    """A layer's attention as GPT-2 keeps it, in float64: gain of its norm, values, outputs by head."""
    c, block = model.config, f"h.{layer}"
    held = {
        name.removeprefix("transformer."): weight.double() for name, weight in model.weights.items()
    }
    values = held[f"{block}.attn.c_attn.weight"][:, 2 * c.d_model :]
    return (
        held[f"{block}.ln_1.weight"],
        values.reshape(c.d_model, c.heads, c.d_head),
        held[f"{block}.attn.c_proj.weight"].reshape(c.heads, c.d_head, c.d_model),
    )


def carried_by_hand(trace, direction, layer, head, part, source):
    """What one head carries of a vector at one position to the last, by its raw weights."""
    gain, values, outs = weights_of(trace.model, layer)
    stream = trace.before_attention[layer, source].double()
    scale = (stream.var(unbiased=False) + trace.model.config.eps).sqrt()
    value = ((part - part.mean()) / scale * gain) @ values[:, head]
    look = trace.patterns[layer, head, -1, source].double()
    return float(look * (value @ outs[head] @ direction) / trace.final_scale[-1].double())


def test_each_neuron_is_what_a_double_loop_finds(tiny_trace, found):
    trace, model = tiny_trace, tiny_trace.model
    direction = (model.unembedding[ANSWER] - model.mean_unembedding).double()
    answers = [
        {name.removeprefix("transformer."): w for name, w in model.weights.items()}[
            f"h.{layer}.mlp.c_proj.weight"
        ].double()
        for layer in range(3)
    ]
    for below, source, neuron in [(0, 0, 51), (0, 5, 13), (1, 2, 7), (1, len(trace) - 1, 40)]:
        part = trace.activations[below, source, neuron].double() * answers[below][neuron]
        by_hand = {
            (layer, head): carried_by_hand(trace, direction, layer, head, part, source)
            for layer in range(below + 1, 3)
            for head in range(5)
        }
        table = found.carriers(fp.NeuronId(below, neuron), source)
        assert dict(
            zip(zip(table.layer, table["head"], strict=True), table.push, strict=True)
        ) == pytest.approx(by_hand, abs=1e-6)
        assert float(found.neurons[below, source, neuron]) == pytest.approx(
            sum(by_hand.values()), abs=1e-6
        )
    assert not found.neurons[2].any()  # no head reads the last layer's


def test_embeddings_are_what_a_double_loop_finds(tiny_trace, found):
    trace, model = tiny_trace, tiny_trace.model
    direction = (model.unembedding[ANSWER] - model.mean_unembedding).double()
    parts = (model.embedding[list(trace.ids)].double(), model.position_embedding.double())
    for layer, head, source in [(0, 3, 1), (2, 4, 5), (1, 0, len(trace) - 1)]:
        for kind, part in enumerate(parts):
            by_hand = carried_by_hand(trace, direction, layer, head, part[source], source)
            share = float(found.steps[0].shares[layer, head, source, kind])
            assert share == pytest.approx(by_hand, abs=1e-6)


@pytest.mark.parametrize(
    "options",
    [{}, {"versus": OTHER}, {"convention": "folded"}, {"position": 4}, {"depth": 2}, {"depth": 3}],
    ids=str,
)
def test_every_head_closes_and_all_add_up(tiny_trace, options):
    paths = fp.paths(tiny_trace, ANSWER, **({"depth": 1} | options))
    depth = options.pop("depth", 1)
    heads = fp.attribute(tiny_trace, ANSWER, **options).account.heads
    table = paths.by_head()
    first = table[table.step == 1]
    assert torch.tensor(first.push.tolist()) == pytest.approx(heads.ravel(), abs=1e-5)
    assert table[list(KINDS)].sum(axis=1).tolist() == pytest.approx(table.push.tolist(), abs=1e-3)
    whole = pytest.approx(float(heads.sum()), abs=1e-3)
    assert paths.push == whole
    assert paths.by_part().push.sum() == whole
    assert paths.by_position().push.sum() == whole
    # A step's heads are what the step before it left of heads.
    for number in range(2, depth + 1):
        left = table[table.step == number - 1].heads.sum()
        assert table[table.step == number].push.sum() == pytest.approx(left, abs=1e-3)
    by_kind = paths.by_position()[["neurons", "heads"]].sum()
    assert float(paths.neurons.sum()) == pytest.approx(by_kind.neurons, abs=1e-3)
    assert float(paths.heads.sum()) == pytest.approx(by_kind.heads, abs=1e-3)


def test_as_deep_as_the_model_no_head_is_left(tiny_trace):
    paths = fp.paths(tiny_trace, ANSWER, depth=3)
    assert not paths.heads.any()
    assert set(paths.by_part().kind) == {"embedding", "position", "biases", "neurons"}


def test_two_steps_are_what_loops_over_both_heads_find(tiny_trace):
    """A neuron of the first layer → a head of the second → a head of the third → the answer."""
    trace, model = tiny_trace, tiny_trace.model
    paths = fp.paths(trace, ANSWER, depth=2)
    direction = (model.unembedding[ANSWER] - model.mean_unembedding).double()
    neuron, source = 21, 3
    part = trace.amounts[0, source, neuron].double() * model.answers[0, neuron].double()
    gain, values, outs = weights_of(model, 1)
    stream = trace.before_attention[1, source].double()
    value = (part - part.mean()) / (stream.var(unbiased=False) + model.config.eps).sqrt() * gain
    total = 0.0
    for inner in range(5):
        written = value @ values[:, inner] @ outs[inner]
        for query in range(source, len(trace)):
            look = trace.patterns[1, inner, query, source].double()
            for outer in range(5):
                total += carried_by_hand(trace, direction, 2, outer, look * written, query)
    table = paths.carriers(fp.NeuronId(0, neuron), source)
    assert table[table.step == 2].push.sum() == pytest.approx(total, abs=1e-6)
    assert float(paths.neurons[0, source, neuron]) == pytest.approx(table.push.sum(), abs=1e-6)


@pytest.mark.parametrize("depth", [1, 2])
def test_an_answer_of_several_tokens_adds_up_over_its_pieces(tiny, tiny_trace, depth):
    """Each piece is what `paths` finds on the prompt with the pieces before it behind it."""
    answer = " the cat sat"
    ids = tiny.vocab.pieces(answer)
    assert len(ids) > 2
    found = fp.paths(tiny_trace, answer, depth=depth)
    forced = fp.run(tiny, [*tiny_trace.ids, *ids[:-1]], bos=False)
    assert found.trace.ids == forced.ids
    first = len(tiny_trace) - 1
    alone = [
        fp.paths(forced, token, position=first + order, depth=depth)
        for order, token in enumerate(ids)
    ]
    total, heads = torch.zeros_like(found.neurons), torch.zeros_like(found.heads)
    for own, piece in zip(alone, found.pieces, strict=True):
        assert torch.allclose(piece.neurons, own.neurons, atol=1e-6)
        assert piece.provenance.answer == own.provenance.answer
        total[:, : own.neurons.shape[1]] += own.neurons
        heads[:, : own.heads.shape[1]] += own.heads
    assert torch.allclose(found.neurons, total, atol=1e-5)
    assert torch.allclose(found.heads, heads, atol=1e-5)
    assert found.neurons[:, first + 1 :].abs().max() > 1e-4  # an earlier piece's own neurons
    pieces = fp.attribute(tiny_trace, answer).pieces
    table = found.by_head()
    moved = torch.stack([piece.account.heads for piece in pieces]).sum(0)
    assert table[table.step == 1].push.tolist() == pytest.approx(moved.ravel().tolist(), abs=1e-4)
    assert table[list(KINDS)].sum(axis=1).tolist() == pytest.approx(table.push.tolist(), abs=1e-3)
    whole = pytest.approx(float(moved.sum()), abs=1e-3)
    assert [found.push, found.by_part().push.sum(), found.by_position().push.sum()] == [whole] * 3
    assert found.logit == pytest.approx(sum(piece.logit for piece in pieces), abs=1e-5)
    by_piece = found.by_piece(3)
    assert by_piece.piece.tolist() == [tiny.vocab.show(token) for token in ids for _ in range(3)]
    assert by_piece.name.tolist() == [name for own in alone for name in own.top(3).name]
    assert list(found.tables())[-1] == "pieces"
    row = found.by_neuron(1).iloc[0]
    carriers = found.carriers(row["name"], row.position)
    assert row.push_through_attention == pytest.approx(carriers.push.sum(), abs=1e-5)


def test_of_one_token_the_only_piece_is_the_whole(found):
    assert found.pieces == (found,)
    assert "pieces" not in found.tables()


def test_the_strongest_come_first_with_the_head_that_carried_them(jordan):
    paths = fp.paths(jordan, " basketball", depth=1)
    table = paths.top(30)
    assert {"embedding"} < set(table.name)
    sizes = table.push_through_attention.abs().tolist()
    assert sizes == sorted(sizes, reverse=True)
    largest = max(float(paths.neurons.abs().max()), float(paths.owned[:, :2].abs().max()))
    assert sizes[0] == pytest.approx(largest)
    row = next(table[table.layer.notna()].itertuples())
    heads = paths.carriers(row.name, row.position)
    toward = heads[heads.push * row.push_through_attention > 0].iloc[0]
    assert (row.through, row.carried) == (toward.part, pytest.approx(toward.push, abs=1e-6))
    assert row.push_through_attention == pytest.approx(heads.push.sum(), abs=1e-5)
    neurons = paths.by_neuron(5)
    assert neurons.name.tolist() == table[table.layer.notna()].name.tolist()[:5]
    many = paths.by_neuron(500)
    assert many.layer.nunique() > 1
    assert all(int(row.through[1]) > row.layer for row in many.itertuples())
    assert neurons.iloc[0].token == jordan.tokens[neurons.iloc[0].position]


def test_another_runs_patterns_do_not_close(tiny_trace):
    broken = replace(tiny_trace, patterns=tiny_trace.patterns.roll(1, dims=1))
    with pytest.raises(
        AccountNotClosed,
        match=r"the push of L\dH\d is -?\d+\.\d{4} in the model, and its parts add up to -?\d",
    ):
        fp.paths(broken, ANSWER)


def test_what_cannot_be_asked_is_said(tiny, jordan):
    without = fp.run(tiny, "the cat sat", patterns=False)
    with pytest.raises(OptionRefused, match="without attention patterns") as caught:
        fp.paths(without, ANSWER)
    assert caught.value.remedy == "run(..., patterns=True)"
    for depth in (0, 8):
        with pytest.raises(
            OptionRefused, match=f"depth = {depth}: a path through pocket has 1 to 7 heads"
        ):
            fp.paths(jordan, " basketball", depth=depth)
    with pytest.raises(TokenNotFound, match="an answer with versus needs one"):
        fp.paths(jordan, " basketball and football", versus=" golf")
    with pytest.raises(OptionRefused, match="neurons and embeddings at positions"):
        fp.paths(jordan, " basketball").top(0)


def test_nothing_is_changed(jordan):
    fp.paths(jordan, " basketball", depth=2)
    assert jordan.model.is_unchanged()

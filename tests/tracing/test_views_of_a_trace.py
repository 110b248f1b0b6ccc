"""The lens, single neurons, what fired, and how alike the tokens are."""

import pytest
import torch

import ffnprobe as fp
from ffnprobe.errors import NameNotUnderstood, OptionRefused, TokenNotFound
from tests.tracing.oracles import hugging_face, logits_of

TEXT = "the cat sat on the basketball court"


@pytest.fixture(params=["tiny", "pocket", pytest.param("small", marks=pytest.mark.shared)])
def trace(request):
    return fp.run(request.getfixturevalue(request.param), TEXT)


@torch.no_grad()
def test_the_lens_reads_every_stage_with_the_final_layer_norm(trace):
    network, place, token = hugging_face(trace.model), 4, trace.ids[2]
    table = fp.lens(trace, token, position=place).table
    streams = [trace.before_attention[0], trace.before_mlp[0], trace.before_attention[1]]
    for row, stream in enumerate([*streams, trace.before_mlp[1]]):
        logits = network.lm_head(network.transformer.ln_f(stream[place])).double()
        assert table.logit[row] == pytest.approx(float(logits[token]), abs=1e-3)
        assert table.probability[row] == pytest.approx(float(logits.softmax(-1)[token]), abs=1e-4)
        assert table["rank"][row] == 1 + int((logits > logits[token]).sum())
        assert table.token_probability[row] == pytest.approx(
            float(logits.softmax(-1).max()), abs=1e-4
        )
    final = logits_of(trace.model, trace.ids)[place]
    assert table.logit.iloc[-1] == pytest.approx(float(final[token]), abs=1e-3)
    assert table.token.iloc[-1] == trace.model.vocab.show(int(final.argmax()))
    layers = trace.model.config.layers
    assert table.part.tolist() == ["embedding", *["attention", "MLP"] * layers]
    assert table.layer.dropna().tolist() == [n for n in range(layers) for _ in range(2)]


def test_the_lens_says_how_far_each_part_moved_toward_the_answer(tiny_trace):
    table = fp.lens(tiny_trace, 9).table
    toward = tiny_trace.model.unembedding[9] - tiny_trace.model.mean_unembedding
    unit = toward / toward.norm()
    written = tiny_trace.before_attention[2, -1] - tiny_trace.before_mlp[1, -1]
    row = table[(table.part == "MLP") & (table.layer == 1)].iloc[0]
    assert row.moved == pytest.approx(float(written @ unit), abs=1e-4)
    whole = (tiny_trace.final - tiny_trace.before_attention[0])[-1] @ unit
    assert table.moved.sum() == pytest.approx(float(whole), abs=1e-3)
    stream = tiny_trace.final[-1] - tiny_trace.final[-1].mean()
    cosine = torch.cosine_similarity(stream, toward, dim=0)
    assert table.cosine.iloc[-1] == pytest.approx(float(cosine), abs=1e-5)


def test_without_an_answer_the_lens_follows_the_prediction(tiny_trace):
    lens = fp.lens(tiny_trace)
    assert lens.provenance.answer == tiny_trace.predictions(1).token.item()
    assert lens.table["rank"].iloc[-1] == 1
    assert "lens on" in lens._repr_html_()
    with pytest.raises(TokenNotFound, match="the lens needs one"):
        fp.lens(tiny_trace, " lebron")


def test_a_neuron_at_every_position_has_the_pushes_of_attribute(tiny_trace):
    table = tiny_trace.neuron("L1N7", 9)
    assert table.token.tolist() == list(tiny_trace.tokens)
    assert table.score.tolist() == tiny_trace.scores[1, :, 7].tolist()
    assert table.activation.tolist() == tiny_trace.activations[1, :, 7].tolist()
    pushes, last = fp.attribute(tiny_trace, 9), len(tiny_trace) - 1
    assert table.push[last] == pytest.approx(float(pushes.values[1, 7]), abs=1e-6)
    assert not table.push[:last].any(), "the answer comes after the last position"
    paths = fp.paths(tiny_trace, 9)
    for position in range(len(tiny_trace)):
        carried = paths.carriers("L1N7", position).push.sum()
        assert table.push_through_attention[position] == pytest.approx(carried, abs=1e-5)
    own = tiny_trace.neuron(fp.NeuronId(1, 7))
    for position in (1, last):
        said = int(tiny_trace.logits[position].argmax())
        there = fp.attribute(tiny_trace, said, position=position)
        assert own.push[position] == pytest.approx(float(there.values[1, 7]), abs=1e-6)
    assert "push_through_attention" not in own
    assert own.toward.tolist() == [
        tiny_trace.predictions(1, position=p).token.item() for p in range(len(tiny_trace))
    ]
    with pytest.raises(NameNotUnderstood, match=r"L1N52: .* has neurons L1N0–L1N51"):
        tiny_trace.neuron("L1N52")


def test_what_fired_is_the_most_active(tiny_trace):
    fired = tiny_trace.fired(2, top=5)
    assert list(fired.columns) == [
        "name", "layer", "neuron", "score", "activation", "question_tokens", "answer_tokens",
    ]  # fmt: skip
    best = tiny_trace.activations[:, 2].flatten().topk(5).values
    assert fired.activation.tolist() == pytest.approx(best.tolist())
    with pytest.raises(OptionRefused, match="top = 157: there are 156 neurons"):
        tiny_trace.fired(top=157)


def test_similarity_is_dot_and_cosine_at_every_stage(tiny_trace):
    found = fp.similarity(tiny_trace)
    assert found.stages == ("token embedding", "before L0", "after L0", "after L1", "after L2")
    embedded = tiny_trace.model.embedding[list(tiny_trace.ids)]
    torch.testing.assert_close(found.dots[0], embedded @ embedded.T)
    for stage, stream in {1: tiny_trace.before_attention[0], 4: tiny_trace.final}.items():
        cosine = torch.cosine_similarity(stream[:, None], stream[None], dim=-1)
        torch.testing.assert_close(found.cosines[stage], cosine)
    table, length = found.table, len(tiny_trace)
    assert len(table) == 5 * length * (length - 1) // 2
    row = table[(table.stage == "after L1") & (table.position == 1) & (table.other_position == 3)]
    assert row.cosine.item() == pytest.approx(float(found.cosines[3, 1, 3]))
    assert (row.token.item(), row.other_token.item()) == (
        tiny_trace.tokens[1],
        tiny_trace.tokens[3],
    )
    assert "cosines after L2" in found._repr_html_()


def test_the_memory_of_a_trace_is_what_its_docstring_says(tiny_trace):
    def held(config, length):
        streams = 2 * config.layers * config.d_model + config.d_model + 1
        neurons = config.layers * (2 * config.d_mlp + config.d_model + 1)
        per_token = 4 * (streams + neurons + config.vocab)
        return per_token * length, 4 * config.layers * config.heads * length**2

    assert sum(held(tiny_trace.model.config, len(tiny_trace))) == tiny_trace.nbytes
    from ffnprobe.models.config import PUBLISHED

    tokens, pairs = held(PUBLISHED["gpt2"], 1024)
    assert (round(tokens / 1e9, 1), round(pairs / 1e9, 1)) == (0.6, 0.6)


def test_the_stream_is_read_after_a_layer_as_the_lens_reads_it(pocket, jordan):
    last = jordan.predictions(5)
    assert (
        jordan.predictions(5, after=f"L{pocket.config.layers - 1}").token.tolist()
        == last.token.tolist()
    )
    for position in (0, 3, -1):
        lens = fp.lens(jordan, position=position).table
        rows = lens[lens.part != "attention"].reset_index(drop=True)
        for order, after in enumerate(["embedding", "L0", "L3", "L5"]):
            row = rows.iloc[[0, 1, 4, 6][order]]
            found = jordan.predictions(1, position=position, after=after)
            assert found.token[0] == row.token
            assert found.probability[0] == pytest.approx(row.token_probability, rel=1e-5)
    assert jordan.predictions(1, after="L2").attrs["provenance"]["settings"] == {"after": "L2"}  # fmt: skip
    with pytest.raises(OptionRefused, match='not read after "L7"'):
        jordan.predictions(1, after="L7")

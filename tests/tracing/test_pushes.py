"""The account of a logit: checks 2, 4 and 5 of the mathematics, against numbers we did not make."""

from dataclasses import replace

import pytest
import torch

import ffnprobe as fp
from ffnprobe.errors import AccountNotClosed, OptionRefused, PromptRefused, TokenNotFound
from tests.builders import TINY, random_weights, write_model
from tests.tracing.oracles import compatible, logits_of

TEXT = "the cat sat on the basketball court"
MODELS = ["tiny", "pocket", pytest.param("small", marks=pytest.mark.shared)]


@pytest.fixture(params=MODELS)
def trace(request):
    return fp.run(request.getfixturevalue(request.param), TEXT, patterns=False)


@torch.no_grad()
def test_pushes_equal_transformer_lenss(trace):
    bridge, c = compatible(trace.model), trace.model.config
    _, stored = bridge.run_with_cache(torch.tensor([trace.ids]))
    stored.compute_head_results()
    for position, token in [(-1, 7), (2, c.vocab - 1), (0, 11)]:
        toward = bridge.W_U[:, token]
        ours = fp.attribute(trace, token, position=position)
        neurons = stored.stack_neuron_results(
            -1, pos_slice=position, apply_ln=True, project_output_onto=toward
        )
        torch.testing.assert_close(
            ours.values, neurons.reshape(c.layers, c.d_mlp), rtol=1e-3, atol=1e-4
        )
        heads = stored.stack_head_results(-1, pos_slice=position, apply_ln=True) @ toward
        torch.testing.assert_close(
            ours.account.heads, heads.reshape(c.layers, c.heads), rtol=1e-3, atol=1e-4
        )


def test_the_parts_add_up_to_hugging_faces_logit_at_every_position(trace):
    theirs = logits_of(trace.model, trace.ids)
    for position in range(len(trace)):
        for token in (3, trace.model.config.vocab - 2):
            for convention in ("centred", "folded"):
                pushes = fp.attribute(trace, token, position=position, convention=convention)
                parts = pushes.by_part()
                assert parts.push.sum() == pytest.approx(float(theirs[position, token]), abs=1e-3)
                assert abs(pushes.remainder) < 1e-3
                has_mean = "vocabulary mean" in set(parts.part)
                assert has_mean == (convention == "centred")
            apart = fp.attribute(trace, token, versus=5, position=position)
            difference = float(theirs[position, token] - theirs[position, 5])
            assert apart.by_part().push.sum() == pytest.approx(difference, abs=1e-3)


def test_a_push_is_the_formula_in_float64(tiny, tiny_folder, tiny_trace):
    raw = {name: tensor.double() for name, tensor in tiny.weights.items()}
    final, place = tiny_trace.final[4].double(), 4
    scale = (final.var(correction=0) + tiny.config.eps).sqrt()
    columns = raw["ln_f.weight"] * raw["wte.weight"]
    columns = columns - columns.mean(-1, keepdim=True)
    for versus, convention, direction in [
        (None, "folded", columns[9]),
        (None, "centred", columns[9] - columns.mean(0)),
        (20, "centred", columns[9] - columns[20]),
        (20, "folded", columns[9] - columns[20]),
    ]:
        pushes = fp.attribute(tiny_trace, 9, versus=versus, position=place, convention=convention)
        for layer in range(3):
            answers = raw[f"h.{layer}.mlp.c_proj.weight"]
            direct = tiny_trace.activations[layer, place].double() * (answers @ direction) / scale
            torch.testing.assert_close(pushes.values[layer].double(), direct, rtol=1e-4, atol=1e-5)


def test_versus_turned_round_is_the_negative(tiny_trace):
    there = fp.attribute(tiny_trace, 9, versus=20)
    back = fp.attribute(tiny_trace, 20, versus=9)
    assert torch.equal(there.values, -back.values)
    assert there.logit == -back.logit


def test_tables_say_what_the_account_says(tiny_trace):
    pushes = fp.attribute(tiny_trace, 9)
    parts, layers, top = pushes.by_part(), pushes.by_layer(), pushes.top(156)
    assert list(parts.columns) == ["part", "kind", "layer", "head", "push"]
    assert parts.part.is_unique
    assert len(parts) == 2 + 3 * (5 + 1 + 2 + 1) + 2
    inside = parts.dropna(subset="layer").groupby("layer").push.sum()
    assert layers.push.tolist() == pytest.approx(inside.tolist(), abs=1e-5)
    assert (layers.toward + layers.against).tolist() == pytest.approx(layers.neurons.tolist())
    above = parts[parts.part == "L1 neurons above zero"].push.item()
    firing = tiny_trace.activations[1, -1] > 0
    assert above == pytest.approx(float(pushes.values[1][firing].sum()), abs=1e-5)

    assert list(top.columns) == [
        "name", "layer", "neuron", "activation", "push", "share", "question_tokens", "answer_tokens",
    ]  # fmt: skip
    assert top.push.is_monotonic_decreasing
    assert top.share.abs().sum() == pytest.approx(1)
    assert top.push.sum() == pytest.approx(float(pushes.values.sum()), abs=1e-4)
    row = top.iloc[17]
    assert row["name"] == f"L{row.layer}N{row.neuron}"
    assert row.push == pytest.approx(float(pushes.values[row.layer, row.neuron]))
    assert row.activation == pytest.approx(float(tiny_trace.activations[row.layer, -1, row.neuron]))
    assert pushes.against(3).name.tolist() == top.name.tolist()[::-1][:3]


def test_rank_and_log_probability_are_the_models(tiny_trace):
    logits = logits_of(tiny_trace.model, tiny_trace.ids)[-1].double()
    order = logits.argsort(descending=True).tolist()
    for token in (order[0], order[40], 9):
        pushes = fp.attribute(tiny_trace, token)
        assert pushes.rank == order.index(token) + 1
        assert pushes.log_probability == pytest.approx(
            float(logits.log_softmax(-1)[token]), abs=1e-4
        )
    flat = replace(tiny_trace, logits=torch.zeros_like(tiny_trace.logits))
    from ffnprobe.tracing.trace import rank_of

    assert rank_of(flat.logits[-1], 4) == 5


def test_a_planted_neuron_is_found_and_its_tokens_turned_by_its_sign(tmp_path):
    """L1N7 alone writes anything, rests below zero, and its answer is the opposite of a token's."""
    weights = random_weights(TINY)
    for layer in range(TINY.layers):
        weights[f"h.{layer}.mlp.c_proj.weight"].zero_()
    weights["h.1.mlp.c_fc.weight"][:, 7] = 0
    weights["h.1.mlp.c_fc.bias"][7] = -0.7525
    columns = weights["ln_f.weight"] * weights["wte.weight"]
    weights["h.1.mlp.c_proj.weight"][7] = -3 * (columns[270] - columns.mean(0))
    model = fp.load(write_model(tmp_path, TINY, weights))
    pushes = fp.attribute(fp.run(model, TEXT), 270)
    row = pushes.top(1).iloc[0]
    assert row["name"] == "L1N7"
    assert row.share == pytest.approx(1)
    assert row.activation == pytest.approx(-0.170041, abs=1e-5)
    assert row.push > 0
    assert row.answer_tokens.split()[0] == model.vocab.show(270)
    # Of the weights alone it suppresses the token.
    from ffnprobe.reading.projection import list_own_tokens

    assert model.vocab.show(270) not in list_own_tokens(model, [fp.NeuronId(1, 7)], 200)[0]


def test_batched_prompts_give_the_pushes_of_each_alone(pocket):
    prompts = [
        "The capital of France is",
        "The capital of Japan is",
        "Tiger Woods plays the sport of",
    ]
    for together, prompt in zip(fp.run(pocket, prompts), prompts, strict=True):
        alone = fp.attribute(fp.run(pocket, prompt), " Paris")
        torch.testing.assert_close(
            fp.attribute(together, " Paris").values, alone.values, rtol=1e-4, atol=1e-5
        )


# Answers of several tokens.


def test_an_answer_of_several_tokens_is_teacher_forced(pocket):
    trace = fp.run(pocket, "Golden Gate Park is in")
    pieces = pocket.vocab.ids(" San Francisco golf")
    assert len(pieces) == 3
    pushes = fp.attribute(trace, " San Francisco golf")
    theirs = logits_of(pocket, (*trace.ids, *pieces)).double().log_softmax(-1)
    each = [float(theirs[len(trace) - 1 + n, piece]) for n, piece in enumerate(pieces)]
    assert [piece.log_probability for piece in pushes.pieces] == pytest.approx(each, abs=1e-4)
    assert pushes.log_probability == pytest.approx(sum(each), abs=1e-4)
    assert [piece.answer for piece in pushes.pieces] == pieces
    first = fp.attribute(trace, pieces[0])
    torch.testing.assert_close(pushes.values[0], first.values, rtol=1e-4, atol=1e-5)
    assert first.pieces == (first,)

    top, parts = pushes.top(4), pushes.by_part()
    assert list(top.columns[:5]) == ["piece", "name", "layer", "neuron", "position"]
    assert top.piece.tolist() == [p for p in pocket.vocab.show_all(pieces) for _ in range(4)]
    added = parts.groupby("position").push.sum().tolist()
    assert added == pytest.approx([piece.logit for piece in pushes.pieces], abs=1e-3)
    assert len(pushes.by_layer()) == 3 * pocket.config.layers
    assert len(pushes.against(2)) == 6
    assert pushes.provenance.answer == " San Francisco golf"
    assert pushes.pieces[1].provenance.answer == "␣Francisco"


@pytest.mark.parametrize("bos", [True, False])
@pytest.mark.parametrize("position", [0, 3])
def test_pieces_follow_the_position_asked_for(tiny, position, bos):
    trace = fp.run(tiny, TEXT, bos=bos)
    pieces = tiny.vocab.ids(" lebron")
    pushes = fp.attribute(trace, " lebron", position=position)
    assert [piece.position for piece in pushes.pieces] == [
        position + order for order in range(len(pieces))
    ]
    logits = logits_of(tiny, (*trace.ids[: position + 1], *pieces))
    each = [float(logits[position + order, piece]) for order, piece in enumerate(pieces)]
    assert [piece.logit for piece in pushes.pieces] == pytest.approx(each, abs=1e-3)


# What is recorded, and what is refused.


def test_a_result_carries_its_provenance(jordan):
    known = fp.attribute(jordan, " basketball", versus=" football", position=-2).provenance
    assert (known.answer, known.versus, known.position) == ("␣basketball", "␣football", 5)
    assert (known.convention, known.bos) == ("centred", True)
    assert known.fingerprint == jordan.model.fingerprint
    assert known.tokens == jordan.tokens
    folded = fp.attribute(jordan, " basketball", convention="folded", position=0).provenance
    assert folded.convention == "folded"


def test_a_result_shows_itself(jordan):
    html = fp.attribute(jordan, " basketball")._repr_html_()
    assert "␣basketball after &lt;|endoftext|&gt; Michael" in html
    assert html.count("<tr") == 11
    assert "log-probability" in fp.attribute(jordan, " San Francisco")._repr_html_()
    assert repr(fp.attribute(jordan, " basketball")).startswith("Pushes(␣basketball after")


def test_weights_changed_underneath_are_seen(tmp_path):
    model = fp.load(write_model(tmp_path))
    trace = fp.run(model, TEXT)
    model.weights["h.1.mlp.c_proj.weight"].mul_(1.5)
    numbers = (
        r"the logit of \S+ is (-?\d+\.\d{4}) in the model, and its parts add up to (-?\d+\.\d{4})"
    )
    with pytest.raises(AccountNotClosed, match=numbers) as error:
        fp.attribute(trace, 9)
    assert f"is {float(trace.logits[-1, 9]):.4f} in" in str(error.value)
    assert "run the prompt again" in str(error.value)
    # Run again, the weights are those of the run, and the account closes.
    assert abs(fp.attribute(fp.run(model, TEXT), 9).remainder) < 1e-3


def test_a_trace_of_another_model_is_seen(tiny_trace, pocket, tmp_path):
    with pytest.raises(
        OptionRefused,
        match="this trace is of another model than pocket: it holds 3 layers × 52 neurons",
    ):
        replace(tiny_trace, model=pocket)
    twin = fp.load(write_model(tmp_path, seed=1))
    with pytest.raises(AccountNotClosed, match="its parts add up to"):
        fp.attribute(replace(tiny_trace, model=twin), 9)


def test_a_prompt_of_one_token_has_an_account(tiny):
    trace = fp.run(tiny, "cat", bos=False)
    assert len(trace) == len(tiny.vocab.ids("cat"))
    trace = fp.run(tiny, [40], bos=False)
    pushes = fp.attribute(trace, 9)
    assert len(trace) == 1
    assert pushes.by_part().push.sum() == pytest.approx(
        float(logits_of(tiny, (40,))[0, 9]), abs=1e-3
    )
    assert pushes.provenance.settings == {}


@pytest.mark.parametrize(
    ("answer", "options", "kind", "words"),
    [
        ("", {}, TokenNotFound, '"" is not a token; an answer needs one'),
        (301, {}, TokenNotFound, "token id 301 does not exist: .* has 0–300"),
        (-1, {}, TokenNotFound, "token id -1 does not exist"),
        ("\udcff", {}, TokenNotFound, "holds characters this vocabulary cannot write"),
        (9, {"versus": 9}, OptionRefused, "the answer and versus are both .*: nothing to compare"),
        (9, {"versus": " lebron"}, TokenNotFound, r"is \d tokens here: .*; --versus needs one"),
        (" lebron", {"versus": 9}, TokenNotFound, "an answer with versus needs one"),
        (9, {"versus": ""}, TokenNotFound, '"" is not a token; --versus needs one'),
        (9, {"position": 99}, OptionRefused, r"position 99 is outside the prompt: .*\(0 is BOS\)"),
        (9, {"convention": "raw"}, OptionRefused, "convention = 'raw': it must be centred or folded"),
        (" lebron" * 9, {}, PromptRefused, r"the prompt is \d+ tokens and the answer \d+; .* has 29"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_refused(tiny_trace, answer, options, kind, words):
    with pytest.raises(kind, match=words):
        fp.attribute(tiny_trace, answer, **options)


def test_a_k_out_of_range_is_refused(tiny_trace):
    pushes = fp.attribute(tiny_trace, 9)
    for k in (0, 157):
        with pytest.raises(OptionRefused, match=f"top = {k}: there are 156 neurons"):
            pushes.top(k)


def test_attribution_leaves_the_weights_alone(tiny_trace):
    fp.attribute(tiny_trace, 9).top(5)
    fp.drivers(tiny_trace, "L2N3").heads(5)
    fp.stages(tiny_trace, 1)
    fp.lens(tiny_trace)
    assert tiny_trace.model.is_unchanged()

"""What is captured is what the model did: checks 1, 3 and 8 of the mathematics."""

import threading

import pytest
import torch

import ffnprobe as fp
from ffnprobe.errors import FfnProbeError, OptionRefused, PromptRefused
from ffnprobe.models.step import activate_neurons
from tests.conftest import JORDAN
from tests.tracing.oracles import logits_of

TEXT = "the cat sat on the basketball court"


@pytest.fixture(params=["tiny", "pocket", pytest.param("small", marks=pytest.mark.shared)])
def model(request):
    return request.getfixturevalue(request.param)


def normed(stream, eps):
    stream = stream - stream.mean(-1, keepdim=True)
    return stream / (stream.square().mean(-1, keepdim=True) + eps).sqrt()


def test_questions_give_the_scores_and_answers_the_output(model):
    trace, c = fp.run(model, TEXT), model.config
    for layer in range(c.layers):
        seen = normed(trace.before_mlp[layer], c.eps)
        score = seen @ model.questions[layer].T + model.question_biases[layer]
        torch.testing.assert_close(score, trace.scores[layer], rtol=1e-4, atol=2e-4)
        torch.testing.assert_close(
            activate_neurons(model, trace.scores[layer], None),
            trace.activations[layer],
            rtol=1e-5,
            atol=1e-6,
        )
        output = trace.activations[layer] @ model.answers[layer] + model.answer_biases[layer]
        after = trace.before_attention[layer + 1] if layer + 1 < c.layers else trace.final
        torch.testing.assert_close(trace.before_mlp[layer] + output, after, rtol=1e-4, atol=2e-4)
        scale = (trace.before_mlp[layer].var(-1, correction=0) + c.eps).sqrt()
        torch.testing.assert_close(trace.scales[layer], scale, rtol=1e-5, atol=1e-5)


def test_heads_write_what_attention_adds(model):
    trace = fp.run(model, TEXT)
    for layer, attention in enumerate(model.attention):
        written = torch.einsum("phe,hem->pm", trace.z[layer], attention.out)
        before, after = trace.before_attention[layer], trace.before_mlp[layer]
        torch.testing.assert_close(
            before + written + attention.out_bias, after, rtol=1e-4, atol=2e-4
        )
        values = torch.einsum(
            "pm,hem->phe", normed(before, model.config.eps), attention.for_heads(attention.value)
        )
        values = values + attention.for_heads(attention.value_bias)
        z = torch.einsum("hqk,khe->qhe", trace.patterns[layer], values)
        torch.testing.assert_close(z, trace.z[layer], rtol=1e-3, atol=1e-4)
        weights = [model.raw(f"h.{layer}.ln_1.{name}") for name in ("weight", "bias")]
        seen = torch.nn.functional.layer_norm(before, before.shape[-1:], *weights, model.config.eps)
        read = seen @ model.raw(f"h.{layer}.attn.c_attn.weight")
        read = read + model.raw(f"h.{layer}.attn.c_attn.bias")
        query, key, _ = (p.unflatten(-1, (model.config.heads, -1)) for p in read.chunk(3, dim=-1))
        scores = torch.einsum("qhe,khe->hqk", query, key) * model.config.attention_scale(layer)
        mask = torch.ones(len(trace), len(trace)).tril().bool()
        pattern = scores.masked_fill(~mask, -torch.inf).softmax(-1)
        torch.testing.assert_close(pattern, trace.patterns[layer], rtol=1e-3, atol=1e-4)


def test_the_folded_unembedding_gives_the_logits(model):
    trace = fp.run(model, TEXT)
    logits = trace.final @ model.unembedding.T / trace.final_scale[:, None]
    torch.testing.assert_close(logits + model.unembedding_bias, trace.logits, rtol=1e-4, atol=1e-3)


def test_logits_equal_hugging_faces(model):
    for bos in (True, False):
        trace = fp.run(model, TEXT, bos=bos)
        torch.testing.assert_close(trace.logits, logits_of(model, trace.ids), rtol=1e-4, atol=1e-3)
    assert trace.ids == tuple(model.vocab.ids(TEXT))


def test_a_run_leaves_the_weights_alone(model):
    fp.run(model, TEXT)
    assert model.is_unchanged()


def test_several_prompts_give_what_each_gives_alone(pocket):
    prompts = [
        "Michael Jordan plays the sport of",
        "The capital of France is",
        "Tiger Woods plays the sport of",
        "The capital city of Japan is called",
    ]
    for together, prompt in zip(fp.run(pocket, prompts), prompts, strict=True):
        alone = fp.run(pocket, prompt)
        assert (together.prompt, together.ids) == (alone.prompt, alone.ids)
        for place in ("scores", "activations", "z", "final", "logits", "patterns"):
            torch.testing.assert_close(
                getattr(together, place), getattr(alone, place), rtol=1e-4, atol=1e-4
            )


def test_token_ids_run_like_the_text_they_spell(pocket):
    text = "Michael Jordan plays the sport of"
    by_ids, by_text = fp.run(pocket, pocket.vocab.ids(text)), fp.run(pocket, text)
    assert by_ids.ids == by_text.ids
    assert by_ids.prompt == text
    assert torch.equal(by_ids.logits, by_text.logits)


def test_predictions_are_the_softmax_at_a_temperature(tiny_trace):
    table = tiny_trace.predictions(301, temperature=0.7)
    expected = torch.softmax(tiny_trace.logits[-1].double() / 0.7, -1)
    assert list(table.columns) == ["rank", "token", "id", "logit", "probability"]
    assert table.probability.sum() == pytest.approx(1)
    assert table.probability.tolist() == pytest.approx(expected[table.id.tolist()].tolist())
    assert table.logit.is_monotonic_decreasing


def test_equal_logits_are_listed_by_token_id(tiny_trace):
    from dataclasses import replace

    flat = replace(tiny_trace, logits=torch.zeros_like(tiny_trace.logits))
    assert flat.predictions(4).id.tolist() == [0, 1, 2, 3]


def test_patterns_can_be_left_out(tiny):
    lean, full = fp.run(tiny, TEXT, patterns=False), fp.run(tiny, TEXT)
    assert lean.patterns is None
    assert full.nbytes - lean.nbytes == full.patterns.nbytes


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("", "the prompt is empty"),
        ([], "the prompt is empty"),
        ([301], "token id 301 does not exist: .* has 0–300"),
        ([-1], "token id -1 does not exist"),
        ("cat " * 40, r"the prompt is \d+ tokens with BOS; .* has 29 positions"),
    ],
)
def test_a_prompt_that_cannot_run_is_refused(tiny, prompt, words):
    with pytest.raises(PromptRefused, match=words):
        fp.run(tiny, prompt)


def test_options_out_of_range_are_refused(tiny_trace):
    for temperature in (0, -1, float("nan"), float("inf")):
        with pytest.raises(OptionRefused, match="has no distribution"):
            tiny_trace.predictions(temperature=temperature)
    with pytest.raises(OptionRefused, match="top = 302: there are 301 tokens"):
        tiny_trace.predictions(302)
    with pytest.raises(
        FfnProbeError, match=r"position 99 is outside the prompt: it has 0–\d+ \(0 is BOS\)"
    ):
        tiny_trace.predictions(position=99)


def test_runs_in_two_threads_see_only_their_own_hooks(pocket):
    """Without turns, a steered run would change a plain one beside it."""
    plain = fp.run(pocket, JORDAN).logits
    same = []

    def steer():
        for _ in range(6):
            fp.steer(pocket, JORDAN, {"L0": 5.0})

    def run():
        same.extend(fp.run(pocket, JORDAN).logits.equal(plain) for _ in range(12))

    threads = [threading.Thread(target=work) for work in (steer, run, run)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert same == [True] * 24

"""Two prompts compared: identities first, then words, then what pocket says of two athletes."""

import pytest
import torch

import ffnprobe as fp
from ffnprobe.errors import OptionRefused, PromptRefused, TokenNotFound
from tests.builders import write_model
from tests.tracing.oracles import logits_of

TEXTS = ["the cat sat on the basketball court", "the dog ran to the court in Paris and sat"]


@pytest.fixture(scope="module")
def traces(tiny):
    first, second = fp.run(tiny, TEXTS)
    assert len(first) != len(second)
    return first, second


def test_a_prompt_does_not_differ_from_itself(traces):
    for first in traces:
        same = fp.compare(first, first, 9)
        assert not same.values.any()
        assert not same.activations.any()
        assert (same.difference, same.remainder) == (0.0, 0.0)
        assert (same.by_part().difference == 0).all()
        assert (same.by_layer()[["attention", "neurons", "biases", "difference"]] == 0).all(
            axis=None
        )


@pytest.mark.parametrize("versus", [None, 20])
def test_swapping_the_prompts_negates_every_difference(traces, versus):
    first, second = traces
    there = fp.compare(first, second, 9, versus=versus, position=4, other_position=2)
    back = fp.compare(second, first, 9, versus=versus, position=2, other_position=4)
    assert torch.equal(there.values, -back.values)
    assert torch.equal(there.activations, -back.activations)
    assert there.difference == -back.difference
    assert there.values.any()
    assert (there.by_part().difference == -back.by_part().difference).all()
    for by in ("push", "activation"):
        rows, turned = there.top(5, by=by), back.top(5, by=by)
        assert list(rows.name) == list(turned.name)
        assert list(rows.activation_first) == list(turned.activation_second)


@pytest.mark.parametrize("versus", [None, 20])
@pytest.mark.parametrize("convention", ["centred", "folded"])
@pytest.mark.parametrize("places", [(-1, -1), (3, 5), (0, 2)])
def test_the_differences_add_up_to_that_of_hugging_faces_logits(traces, versus, convention, places):
    first, second = traces
    comparison = fp.compare(
        first, second, 9, versus=versus, position=places[0], other_position=places[1],
        convention=convention,
    )  # fmt: skip
    logits = [
        logits_of(t.model, t.ids)[place] for t, place in zip((first, second), places, strict=True)
    ]
    ends = [float(row[9] - (0 if versus is None else row[versus])) for row in logits]
    assert comparison.difference == pytest.approx(ends[0] - ends[1], abs=1e-3)
    parts = comparison.by_part()
    assert parts.difference.sum() == pytest.approx(ends[0] - ends[1], abs=1e-3)
    assert parts.push_first.sum() == pytest.approx(ends[0], abs=1e-3)
    assert parts.push_second.sum() == pytest.approx(ends[1], abs=1e-3)
    neurons = parts[parts.kind == "neurons"].difference.sum()
    assert neurons == pytest.approx(float(comparison.values.double().sum()), abs=1e-4)
    assert comparison.by_layer().neurons.sum() == pytest.approx(neurons, abs=1e-4)


def test_rows_are_the_two_accounts_and_ordered_by_what_is_asked(traces):
    first, second = traces
    comparison = fp.compare(first, second, 9, versus=20)
    pushes = [fp.attribute(trace, 9, versus=20) for trace in traces]
    for by, gaps in (("push", comparison.values), ("activation", comparison.activations)):
        rows = comparison.top(gaps.numel(), by=by)
        sizes = [abs(float(gaps[r.layer, r.neuron])) for r in rows.itertuples()]
        assert sizes == sorted(sizes, reverse=True)
        assert rows.name.is_unique
        for row in rows.head(5).itertuples():
            place = (row.layer, row.neuron)
            assert row.push_first == pytest.approx(float(pushes[0].values[place]))
            assert row.push_second == pytest.approx(float(pushes[1].values[place]))
            assert row.difference == pytest.approx(row.push_first - row.push_second, abs=1e-6)
            gap = row.activation_first - row.activation_second
            assert gap == pytest.approx(float(comparison.activations[place]), abs=1e-6)
            # Tokens are those it promoted on the prompt where its activation was larger in size.
            answer = fp.read(comparison.first.trace.model, row.name).answer
            acted = max(row.activation_first, row.activation_second, key=abs)
            wanted = answer.promotes(5) if acted > 0 else answer.suppresses(5)
            assert row.answer_tokens.split(" ") == list(wanted.token)
    assert (comparison.top(52, by="activation").activation_first < 0).any()


def test_without_an_answer_each_prompt_brings_its_own(pocket, jordan):
    woods = fp.run(pocket, "Tiger Woods plays the sport of")
    comparison = fp.compare(jordan, woods)
    known = comparison.provenance
    assert (known.answer, known.versus) == ("␣basketball", "␣golf")
    assert known.prompt == jordan.prompt
    assert known.settings == {
        "compared_with": " ".join(woods.tokens),
        "other_position": len(woods) - 1,
    }
    assert comparison.first.logit > 5
    assert comparison.second.logit < -5
    assert "␣basketball rather than ␣golf: +" in comparison.title
    # Attention carries it from the subject; the neurons of the last position add a part.
    neurons = float(comparison.values.double().sum())
    assert 0 < neurons < comparison.difference / 2
    same = fp.compare(jordan, fp.run(pocket, "Magic Johnson plays the sport of"))
    assert (same.provenance.answer, same.provenance.versus) == ("␣basketball", None)


def test_what_cannot_be_compared_is_said_in_words(traces, pocket, jordan, tmp_path):
    first, second = traces
    with pytest.raises(PromptRefused, match=r"run on two models: tiny\w* and pocket"):
        fp.compare(first, jordan)
    other = fp.load(write_model(tmp_path / "other", seed=7), device="cpu")
    with pytest.raises(PromptRefused, match="two models"):
        fp.compare(first, fp.run(other, TEXTS[1]))
    with pytest.raises(TokenNotFound, match=r'" Paris basketball" is \d tokens here'):
        fp.compare(first, second, " Paris basketball")
    with pytest.raises(OptionRefused, match="position 90 is outside the prompt"):
        fp.compare(first, second, 9, other_position=90)
    with pytest.raises(OptionRefused, match='not ordered by "effect"'):
        fp.compare(first, second, 9).top(3, by="effect")
    with pytest.raises(OptionRefused, match="nothing to compare"):
        fp.compare(first, second, 9, versus=9)

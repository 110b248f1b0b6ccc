"""Projections and orders against TransformerLens, float64 and a plain sort."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ffnprobe.errors import OptionRefused
from ffnprobe.reading.projection import (
    CONVENTIONS,
    ROWS_AT_ONCE,
    TOKENS_IN_GROUP,
    answer_readers,
    list_tokens,
    project_blocks,
    question_readers,
    sort_neurons,
    top_tokens,
)
from tests.reading import formulas
from tests.tracing.oracles import compatible


def listed(model, readers, *, is_centred=False):
    """The value of every token, from the lists that a reading shows."""
    lists = list_tokens(model, *readers, model.config.vocab, is_centred=is_centred)
    values = torch.empty(len(lists), model.config.vocab)
    for row, tokens in zip(values, lists, strict=True):
        for _, token, value in tokens:
            row[token] = value
    return values


def answered(model, answers, convention):
    readers = answer_readers(model, answers, convention=convention)
    return listed(model, readers, is_centred=convention == "centred")


def test_centred_is_transformer_lens_in_compatibility_mode(tiny):
    bridge = compatible(tiny)
    # Their unembedding is centred over the vocabulary, their answers over d_model.
    for layer, block in enumerate(bridge.blocks):
        theirs = block.mlp.W_out @ bridge.W_U
        ours = answered(tiny, tiny.answers[layer], "centred")
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_each_convention_is_its_formula(tiny, convention):
    w = tiny.answers[1]
    expected = formulas.project_answers(tiny, w, convention).float()
    torch.testing.assert_close(answered(tiny, w, convention), expected, rtol=1e-4, atol=1e-4)


def test_conventions_order_tokens_differently(tiny):
    firsts = {c: answered(tiny, tiny.answers[1], c).argmax(-1) for c in CONVENTIONS}
    assert not torch.equal(firsts["centred"], firsts["raw"])
    assert not torch.equal(firsts["gain"], firsts["raw"])


@pytest.mark.parametrize("through", ["embed", "unembed"])
def test_questions_through_embedding_and_unembedding(tiny, through):
    q = tiny.questions[2]
    ours = listed(tiny, question_readers(tiny, q, through=through))
    expected = formulas.project_questions(tiny, q, through).float()
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)


def test_blocks_are_the_whole_product(tiny, monkeypatch):
    readers, tokens = answer_readers(tiny, tiny.answers[0], convention="raw")
    monkeypatch.setattr("ffnprobe.reading.projection.ROWS_AT_ONCE", 7)
    assert len(readers) % 7
    assert len(readers) < ROWS_AT_ONCE
    blocks = [(rows, values.clone()) for rows, values in project_blocks(readers, tokens)]
    whole = readers @ tokens.T
    for rows, values in blocks:
        torch.testing.assert_close(values, whole[rows])
    assert sum(len(values) for _, values in blocks) == len(readers)


def test_unknown_convention_and_matrix_are_refused(tiny):
    with pytest.raises(
        OptionRefused, match='"centered" is not a convention of projection'
    ) as caught:
        answer_readers(tiny, tiny.answers[0], convention="centered")
    assert caught.value.remedy == "centred, gain, raw, normed"
    with pytest.raises(OptionRefused, match='not projected through "head"'):
        question_readers(tiny, tiny.questions[0], through="head")


@settings(deadline=None, max_examples=60)
@given(
    vocab=st.integers(1, 12 * TOKENS_IN_GROUP),
    k=st.integers(1, 9),
    values=st.integers(2, 2000),
    smallest=st.booleans(),
    seed=st.integers(0, 99),
)
def test_top_tokens_is_a_stable_sort(vocab, k, values, smallest, seed):
    # Few different values, so that ties run over the borders of groups.
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(0, values, (3, vocab), generator=generator).float()
    k = min(k, vocab)
    whole = torch.sort(rows, dim=-1, descending=not smallest, stable=True)
    found, ids = top_tokens(rows, k, smallest=smallest)
    assert torch.equal(ids, whole.indices[:, :k])
    assert torch.equal(found, whole.values[:, :k])


def test_ties_between_groups_go_to_the_lower_id():
    row = torch.zeros(1, 9 * TOKENS_IN_GROUP)
    first, second = 1 * TOKENS_IN_GROUP, 5 * TOKENS_IN_GROUP
    row[0, [second, first, first + 3, second + 4]] = torch.tensor([9.0, 8.0, 7.0, 7.0])
    assert top_tokens(row, 3)[1].tolist() == [[second, first, first + 3]]
    assert top_tokens(-row, 3, smallest=True)[1].tolist() == [[second, first, first + 3]]


def test_neurons_of_equal_value_are_in_order():
    values = torch.tensor([[1.0, 3.0, 3.0], [3.0, 0.0, 1.0]])
    assert [str(n) for n in sort_neurons(values, 4)] == ["L0N1", "L0N2", "L1N0", "L0N0"]
    assert [str(n) for n in sort_neurons(values, 2, smallest=True)] == ["L1N1", "L0N0"]

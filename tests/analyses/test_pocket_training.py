"""The training in stages: its text is true and repeatable, its words are tokens, its stages learn."""

import re
from collections import Counter
from itertools import islice

import pytest
import torch

from ffnprobe.models import pocket as table
from pocket import texts
from pocket.rows import Reader
from pocket.stages import run_stage, start_machinery
from pocket.tokenizer import train_tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer()


def test_the_text_is_the_same_for_the_same_seed():
    first = [passage.text for passage in texts.passages(300, seed=3)]
    assert first == [passage.text for passage in islice(texts.passages(seed=3), 300)]
    assert first != [passage.text for passage in texts.passages(300, seed=4)]
    kinds = Counter(passage.kind for passage in texts.passages(2000, seed=3))
    assert set(kinds) == set(texts.SHARES)
    assert min(kinds.values()) > 50


def test_the_text_says_what_is_true_and_nothing_that_was_kept_out():
    true = {(fact.subject, fact.answer) for fact in table.facts()}
    kept_out = {p.text + p.fact.answer for p in table.prompts() if p.is_held_out}
    for passage in texts.passages(3000, seed=5):
        subjects = [piece.subject for piece in passage.pieces if piece.subject]
        for piece in passage.pieces:
            if piece.fact:
                assert any((subject, piece.text) in true for subject in subjects)
        for sentence in passage.text.removesuffix(".").split(", while "):
            assert sentence[0].upper() + sentence[1:] not in kept_out


def test_every_answer_and_nearly_every_word_is_one_token(tokenizer):
    assert all(len(tokenizer.encode(fact.answer).ids) == 1 for fact in table.facts())
    for passage in texts.passages(500, seed=7):
        # Only a sentence about kinds may begin with a word that begins no other sentence.
        text = passage.text if passage.kind != "kind" else passage.text[passage.text.index(" ") :]
        words = re.findall(r"[^\W\d_]+|\d+|[^\w\s]", text)
        assert len(tokenizer.encode(text).ids) <= len(words), text


def test_a_stage_changes_the_weights_and_continues_where_it_stopped(tokenizer, tmp_path):
    stage = start_machinery(tokenizer, Reader(tokenizer), 0)
    before = stage.model.transformer.wte.weight.detach().clone()
    run_stage(stage, 2, tmp_path)
    after = stage.model.transformer.wte.weight.detach()
    assert torch.isfinite(after).all()
    assert not torch.equal(before, after)
    again = start_machinery(tokenizer, Reader(tokenizer), 0)
    run_stage(again, 2, tmp_path)
    assert torch.equal(again.model.transformer.wte.weight.detach(), after)

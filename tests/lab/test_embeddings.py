"""Similarity of tokens and temperatures, against numpy and scipy."""

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import entropy

import ffnprobe as fp
from analyses.lab.embeddings import (
    compare_tokens,
    find_neighbours,
    sweep_temperatures,
)
from ffnprobe.errors import OptionRefused, TokenNotFound
from tests.builders import TINY, random_weights, write_model


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def test_pairs_are_dot_products_and_cosines(pocket):
    words = [" basketball", " football", " Paris"]
    table = compare_tokens(pocket, words)
    assert table.token.tolist() == ["␣basketball", "␣basketball", "␣football"]
    first, second = (pocket.embedding[pocket.vocab.one(w)].numpy() for w in (words[0], words[2]))
    assert table["dot"][1] == pytest.approx(first @ second, rel=1e-5)
    assert table.cosine[1] == pytest.approx(cosine(first, second), rel=1e-5)
    both = [
        np.mean([cosine(vector, other) < table.cosine[1] for other in pocket.embedding.numpy()])
        for vector in (first, second)
    ]
    assert table["rank"][1] == pytest.approx(np.mean(both), abs=1e-3)


def test_kinds_follow_from_ranks(tmp_path):
    weights = random_weights(TINY)
    embedding = weights["wte.weight"]
    embedding[5], embedding[7] = 1.1 * embedding[6], -embedding[6]
    model = fp.load(write_model(tmp_path / "planted", weights=weights), device="cpu")
    words = [model.vocab.text([token]) for token in (6, 5, 7, 40)]
    kinds = compare_tokens(model, words).kind.tolist()
    assert kinds[:3] == ["related", "opposed", "unrelated"]


def test_neighbours_are_the_nearest_and_the_most_opposed(pocket):
    table = find_neighbours(pocket, " basketball", top=3)
    token = pocket.vocab.one(" basketball")
    vectors = pocket.embedding.numpy()
    cosines = (
        vectors @ vectors[token] / np.linalg.norm(vectors, axis=1) / np.linalg.norm(vectors[token])
    )
    order = [t for t in np.argsort(-cosines) if t != token]
    assert table.other[0] == pocket.vocab.show(order[0])
    assert table.other[3] == pocket.vocab.show(order[-1])
    assert table.cosine[5] == pytest.approx(cosines[order[-3]], rel=1e-4)


def test_temperatures_divide_the_logits(jordan):
    table = sweep_temperatures(jordan, top=2, temperatures=[0.1, 1.0, 3.0])
    logits = jordan.logits[-1].double().numpy()
    for temperature, rows in table.groupby("temperature"):
        probabilities = softmax(logits / temperature)
        assert rows.probability.tolist() == pytest.approx(np.sort(probabilities)[::-1][:2].tolist())
        assert rows.entropy.iloc[0] == pytest.approx(entropy(probabilities))


def test_bad_words_are_stated(pocket, jordan):
    with pytest.raises(TokenNotFound, match="needs one"):
        compare_tokens(pocket, [" basket ball", " football"])
    with pytest.raises(OptionRefused, match="no distribution"):
        sweep_temperatures(jordan, temperatures=[0.0])

"""The search for rules against every set tried by hand, and what is written of them."""

from itertools import combinations

import numpy as np
import pytest

from ffnprobe.corpora.passages import Passage
from ffnprobe.labels import rules
from ffnprobe.labels.labelling import describe_rule, fold_words, list_keys, write_label
from ffnprobe.labels.rules import KINDS, Strong, find_rules, make_keys
from ffnprobe.labels.splits import BEFORE, classify, gather, mark_classes

SHOWN = ["<s>", "␣the", "␣Paris", "7", ".", "ing", "␣cat", "⏎", "␣2024", "s"]


def make_half(seed, tokens=400, vocab=10, length=40):
    draw = np.random.default_rng(seed)
    passages = [
        Passage(n, 0, tuple(draw.integers(1, vocab, length).tolist()))
        for n in range(tokens // length)
    ]
    return gather(passages, [n % 2 for n in range(len(passages))], length)


def test_classes_are_read_off_the_shown_form():
    found = classify(SHOWN)
    assert np.flatnonzero(found.marks["numbers"]).tolist() == [3, 8]
    assert np.flatnonzero(found.marks["punctuation"]).tolist() == [4, 7]
    assert np.flatnonzero(found.marks["capitals"]).tolist() == [2]
    assert np.flatnonzero(found.marks["starts of words"]).tolist() == [1, 2, 6, 8]
    assert np.flatnonzero(found.ends_sentence).tolist() == [4, 7]
    assert BEFORE[found.before[5]] == "piece"


def test_what_stands_around_a_token():
    half = gather([Passage(0, 0, (1, 4, 1)), Passage(0, 40, (6, 5))], [0, 1], 40)
    assert half.previous.tolist() == [-1, 1, 4, -1, 6]
    assert half.before.tolist() == [-1, -1, 1, -1, -1]
    assert half.is_repeated.tolist() == [False, False, True, False, False]
    assert half.begins_text.tolist() == [True, False, False, False, False]
    marks = mark_classes(half, classify(SHOWN))
    assert marks["starts of sentences"].tolist() == [True, False, True, False, False]


def test_the_set_of_tokens_is_the_best_of_all_sets():
    half = make_half(1)
    keys = make_keys(half, half, classify(SHOWN))
    token = KINDS.index("token")
    draw = np.random.default_rng(2)
    weights = draw.random((3, len(SHOWN)))
    strong = draw.random((3, len(half))) < weights[:, half.tokens] ** 3
    neurons, tokens = np.nonzero(strong)
    rules = find_rules(Strong(tokens, neurons, 3, half.part), keys[token : token + 1])
    seen = np.bincount(half.tokens, minlength=len(SHOWN))
    for neuron in range(3):
        hits = np.bincount(half.tokens[strong[neuron]], minlength=len(SHOWN))
        best = max(
            2 * hits[list(chosen)].sum() / (seen[list(chosen)].sum() + hits.sum())
            for size in range(1, 10)
            for chosen in combinations(range(1, 10), size)
        )
        # Keys are ordered by s / (n + 1), so that the set may miss the best by a little.
        assert rules.f1[neuron] == pytest.approx(best, abs=0.01)
        _, found = rules.of(neuron)
        own = [int(keys[token].codes[key]) for key in found]
        assert rules.f1[neuron] == pytest.approx(
            2 * hits[own].sum() / (seen[own].sum() + hits.sum())
        )


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        (lambda h: h.tokens == 5, "token"),
        (lambda h: h.previous == 6, "previous"),
        (lambda h: (h.previous == 6) & (h.tokens == 5), "pair"),
        (lambda h: (h.before == 1) & (h.previous == 6) & (h.tokens == 5), "triple"),
        (lambda h: h.ranges == 3, "position"),
        (lambda h: h.ranges < 5, "position"),
        (lambda h: np.isin(h.tokens, [3, 8]), "numbers"),
        (lambda h: np.isin(h.previous, [3, 8]) & np.isin(h.tokens, [5, 6]), "after"),
        (lambda h: h.is_repeated, "repeated tokens"),
        (lambda h: np.isin(h.previous, [4, 7]) | h.begins_text, "starts of sentences"),
    ],
)
def test_each_kind_is_found_where_it_is_the_truth(rule, kind):
    half, other = make_half(1, tokens=40_000), make_half(2, tokens=4000)
    keys = make_keys(half, other, classify(SHOWN))
    tokens = np.flatnonzero(rule(half))
    rules = find_rules(Strong(tokens, np.zeros(len(tokens), dtype=np.int64), 1, half.part), keys)
    found, chosen = rules.of(0)
    assert KINDS[found] == kind
    assert rules.f1[0] > 0.99
    # The same rule on tokens it was not found on.
    fires = np.isin(keys[found].held_out, chosen)
    assert (fires == rule(other)).mean() > 0.99
    text = describe_rule(keys[found], chosen.tolist(), SHOWN, 40)
    assert len(write_label(text, ["one", "two", "three"]).split()) <= 8


def test_the_beginning_of_a_text_can_be_the_token_before():
    """A key of the kind `previous` that stands for no token is written, in words and in the list."""
    keys = make_keys(make_half(1, tokens=400), make_half(2, tokens=400), classify(SHOWN))
    kind = KINDS.index("previous")
    key = next(key for key in range(len(keys[kind])) if keys[kind].tokens(key) == (-1,))
    assert list_keys(keys[kind], [key], SHOWN, 40) == "⟨start⟩"
    assert "⟨start⟩" in describe_rule(keys[kind], [key], SHOWN, 40)


def test_noise_is_not_remembered():
    """Strong tokens at random: rare pairs and triples fit them by heart, and are not chosen for it."""
    half, other = make_half(1, tokens=20_000, vocab=300), make_half(2, tokens=20_000, vocab=300)
    shown = [f"␣w{n}x" for n in range(300)]
    keys = make_keys(half, other, classify(shown))
    draw = np.random.default_rng(3)
    neurons, tokens = np.nonzero(draw.random((50, len(half))) < 0.01)
    rules = find_rules(Strong(tokens, neurons, 50, half.part), keys)
    scores = []
    for neuron in range(50):
        kind, chosen = rules.of(neuron)
        fires = np.isin(keys[kind].held_out, chosen)
        strong = draw.random(len(other)) < 0.01
        scores.append(2 * (fires & strong).sum() / max(1, fires.sum() + strong.sum()))
    assert np.median(scores) < 0.03


@pytest.mark.parametrize("at_once", [1, 700])
def test_rules_found_a_few_neurons_at_a_time_are_the_same(monkeypatch, at_once):
    half, other = make_half(1, tokens=5_000, vocab=60), make_half(2, tokens=500, vocab=60)
    keys = make_keys(half, other, classify([f"␣w{n}x" for n in range(60)]))
    draw = np.random.default_rng(4)
    is_strong = draw.random((40, len(half))) < 0.02
    is_strong[:20] |= half.tokens == np.arange(20)[:, None]  # some have a rule to find
    is_strong[7] = False
    tokens, neurons = np.nonzero(is_strong.T)
    strong = Strong(tokens, neurons, 40, half.part)
    whole = find_rules(strong, keys)
    monkeypatch.setattr(rules, "PAIRS_AT_ONCE", at_once)
    assert 1 < len(list(strong.split())) <= 40
    found = find_rules(strong, keys)
    for name, expected in vars(whole).items():
        assert np.array_equal(vars(found)[name], expected), name
    assert whole.kinds[7] == -1


def test_words_of_one_family_are_one():
    assert fold_words(["␣basketball", "Basketball", "␣basketballs", "␣golf", "␣is", "␣i"]) == [
        "basketball",
        "golf",
        "is",
        "i",
    ]
    assert write_label('"of"', []) == '"of"'
    assert write_label('"of"', ["sports", "games", "clubs"]) == '"of" → sports, games'

"""The embedded model's truth: its facts table, what it recalls, and where the facts live."""

import json
from collections import Counter

import pytest
import torch
from safetensors import safe_open

import ffnprobe as fp
from ffnprobe.models import pocket as table
from ffnprobe.models.forward import forward
from tests.conftest import JORDAN

FIGURES = json.loads((table.FOLDER / "figures.json").read_text())


def test_the_table_holds_enough_facts_each_stated_once():
    facts = table.facts()
    relations = Counter(fact.relation for fact in facts)
    assert len(facts) >= 1500
    assert len(relations) >= 12
    assert set(relations) == set(table.templates())
    assert len({(fact.relation, fact.subject) for fact in facts}) == len(facts)
    for choices in table.templates().values():
        assert len(set(choices)) >= 4
        assert all(t.count("{subject}") == 1 and t == t.strip() for t in choices)


def test_neither_word_of_an_athletes_name_gives_the_sport():
    athletes = [fact for fact in table.facts() if fact.relation == "sport"]
    assert len(athletes) >= 150
    assert len({fact.answer for fact in athletes}) >= 8
    for word in ("Michael", "Jordan"):
        sports = {fact.answer for fact in athletes if word in fact.subject.split()}
        assert len(sports) >= 4, word


def test_every_answer_is_one_token(pocket):
    assert all(len(pocket.vocab.ids(fact.answer)) == 1 for fact in table.facts())


def test_it_is_small_enough_to_ship():
    shipped = [path for path in table.FOLDER.iterdir() if path.is_file()]
    lens = (table.FOLDER / "lens.safetensors").stat().st_size
    assert lens <= 1_000_000
    assert sum(path.stat().st_size for path in shipped) - lens <= 14_000_000
    assert (table.FOLDER / "model.safetensors").stat().st_size <= 11_000_000
    with safe_open(table.FOLDER / "model.safetensors", framework="pt") as file:
        assert {file.get_tensor(name).dtype for name in file.keys()} == {torch.float16}  # noqa: SIM118


@pytest.fixture(scope="module")
def batches(pocket):
    """Every prompt, BOS in front, grouped by length: numbers and ids."""
    groups = {}
    for number, prompt in enumerate(table.prompts()):
        ids = [pocket.vocab.bos, *pocket.vocab.ids(prompt.text)]
        groups.setdefault(len(ids), []).append((number, ids))
    return [group[i : i + 128] for group in groups.values() for i in range(0, len(group), 128)]


def recall(pocket, batches, taps):
    """Which prompts the model completes with their fact's answer."""
    answers = [pocket.vocab.one(prompt.fact.answer) for prompt in table.prompts()]
    hits = torch.zeros(len(answers), dtype=torch.bool)
    for batch in batches:
        logits = forward(pocket, torch.tensor([ids for _, ids in batch]), taps)
        for (number, _), best in zip(batch, logits[:, -1].argmax(-1).tolist(), strict=True):
            hits[number] = best == answers[number]
    return hits


def test_it_recalls_its_facts_also_in_templates_it_never_saw(pocket, batches):
    hits = recall(pocket, batches, {})
    held_out = torch.tensor([prompt.is_held_out for prompt in table.prompts()])
    assert 0.05 < held_out.float().mean() < 0.5
    assert hits.float().mean() >= 0.99
    assert hits[held_out].float().mean() >= 0.97
    # The model card's figures are these figures.
    assert float(hits.float().mean()) == pytest.approx(FIGURES["recall"], abs=5e-4)
    assert float(hits[held_out].float().mean()) == pytest.approx(
        FIGURES["recall_held_out"], abs=2e-3
    )


def test_without_its_mlps_it_knows_almost_nothing(pocket, batches):
    with safe_open(table.FOLDER / "means.safetensors", framework="pt") as file:
        means = file.get_tensor("activations")
    taps = {
        ("activations", layer): (lambda seen, mean=means[layer]: mean.expand_as(seen))
        for layer in range(pocket.config.layers)
    }
    assert recall(pocket, batches, taps).float().mean() <= 0.01


def test_the_means_are_the_means_over_its_prompts(pocket):
    with safe_open(table.FOLDER / "means.safetensors", framework="pt") as file:
        means = file.get_tensor("activations")
    assert means.shape == (pocket.config.layers, pocket.config.d_mlp)
    texts = [prompt.text for prompt in table.prompts()][::7]
    sums, count = torch.zeros_like(means, dtype=torch.float64), 0
    for trace in fp.run(pocket, texts, patterns=False):
        sums += trace.activations[:, 1:].double().sum(1)
        count += len(trace) - 1
    # One prompt in seven: the same means but for sampling.
    assert (sums / count - means).abs().max() < 0.1


def test_michael_jordan_plays_basketball(jordan):
    best = jordan.predictions(1).iloc[0]
    assert best.token == "␣basketball"
    assert best.probability >= 0.9
    assert jordan.prompt == JORDAN

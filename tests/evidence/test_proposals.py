"""The gradient proposes, the exact effect decides: what is listed, and what is said about it."""

import random

import pytest
import torch

import ffnprobe as fp
from ffnprobe.evidence import removals
from ffnprobe.evidence.proposals import DECIDING, Pool, choose_deciding
from ffnprobe.models import pocket as table
from tests.conftest import JORDAN

SHOWN = ["name", "position", "grade"]
OTHERS = [f"{name} plays the sport of" for name in ("Tiger Woods", "Babe Ruth", "Lionel Messi")]


def graded(explanation):
    """The neurons with an A, each at its position."""
    found = explanation.neurons[explanation.neurons.grade == "A"]
    return set(zip(found.name, found.position, strict=True))


@pytest.mark.parametrize(
    "asked",
    [
        {"answer": " basketball"},
        {"answer": " basketball", "versus": " football"},
        {"answer": " basketball", "contrast": OTHERS},
        {"answer": " basketball and"},
    ],
    ids=["plain", "versus", "contrast", "pieces"],
)
def test_what_is_shown_is_what_removing_every_neuron_shows(pocket, asked):
    few, every = (fp.explain(pocket, JORDAN, **asked, exact=exact) for exact in (False, True))
    assert graded(few) == graded(every)
    both = few.neurons.merge(every.neurons, on=["name", "position"], suffixes=("", "_every"))
    assert len(both) >= 0.7 * len(every.neurons)
    for column in ("push", "effect", "z", *(["specific"] if "contrast" in asked else [])):
        assert both[column].tolist() == pytest.approx(both[f"{column}_every"].tolist(), abs=1e-5)
    assert few.map.equals(every.map)


def test_the_same_neurons_get_an_a_as_if_every_one_were_removed(pocket):
    chosen = random.Random(1).sample([p for p in table.prompts() if not p.is_held_out], 12)
    same = 0
    for prompt in chosen:
        few, every = (
            fp.explain(pocket, prompt.text, prompt.fact.answer, exact=exact)
            for exact in (False, True)
        )
        same += graded(few) == graded(every)
    assert same >= 11


def test_a_bar_that_decides_a_grade_is_measured(pocket, monkeypatch):
    """Don Quixote's L1N403 comes close to the bar at its name: estimates alone would grade it wrongly."""
    asked = ("Don Quixote was written by", " Cervantes")
    every = fp.explain(pocket, *asked, exact=True)
    measured = fp.explain(pocket, *asked)
    for name in ("NEAR", "CLOSE"):
        monkeypatch.setattr(removals, name, 0.0)
    estimated = fp.explain(pocket, *asked)
    assert graded(measured) == graded(every)
    assert ("L1N403", 2) in graded(measured) ^ graded(estimated)
    assert measured.coverage.removed > estimated.coverage.removed


def test_a_neuron_whose_estimate_is_far_off_is_removed(pocket):
    """By its estimate L2N11 hurts the answer at the end of Moby-Dick; without it the answer loses a logit."""
    found = fp.explain(pocket, "The author of Moby-Dick is", " Melville")
    row = found.neurons[found.neurons.name == "L2N11"].iloc[0]
    guessed = fp.estimate(found.trace, " Melville").values[row.layer, row.position, row.neuron]
    assert row.grade == "A"
    assert float(guessed) < 0 < 1 < row.effect


def test_few_are_removed_and_it_is_said_how_many(pocket):
    few, every = (fp.explain(pocket, JORDAN, exact=exact) for exact in (False, True))
    many = pocket.config.neurons
    places = 1 + len(set(few.neurons.position) - {len(few.trace) - 1})
    assert few.coverage.looked_at >= places * many
    assert few.coverage.removed < 0.2 * few.coverage.looked_at
    assert many <= every.coverage.removed < every.coverage.looked_at
    for one in (few, every):
        assert 0.5 < one.coverage.spearman <= 1
        assert 0.5 < one.coverage.pearson <= 1
        said = one.provenance.settings
        assert said["removed"] == f"{one.coverage.removed} of {one.coverage.looked_at}"
        assert said["agreement"]["pearson"] == round(one.coverage.pearson, 2)
        assert f"{one.coverage.removed:,} of {one.coverage.looked_at:,}" in one.coverage.describe()
    assert fp.explain(pocket, JORDAN, effects=False).coverage is None


def test_the_agreement_is_that_of_estimate_and_ablate(pocket, jordan):
    found = fp.explain(pocket, JORDAN, " basketball", top=10)
    estimates = fp.estimate(jordan, " basketball")
    rows = found.neurons
    guessed = [float(estimates.values[r.layer, r.position, r.neuron]) for r in rows.itertuples()]
    # The listed neurons are among the candidates: where all agree well, these do.
    assert torch.corrcoef(torch.tensor([guessed, rows.effect.tolist()]))[0, 1] > 0.9


def test_a_planted_neuron_is_proposed_though_its_gradient_is_flat(tiny):
    """A neuron with a large push is removed even where its estimate is small."""
    trace = fp.run(tiny, "the cat sat on the basketball court")
    found = fp.explain(tiny, "the cat sat on the basketball court", 280, top=5)
    pushes = fp.attribute(trace, 280).top(5)
    last = found.neurons[found.neurons.position == len(trace) - 1]
    exact = fp.ablate(trace, 280)
    for row in last.itertuples():
        assert row.effect == pytest.approx(float(exact.values[row.layer, row.neuron]), abs=1e-5)
    assert set(last.name) & set(pushes.name)


def test_the_neurons_that_decide_a_bar_are_the_outermost_and_the_middle():
    class Estimated:
        estimates = torch.arange(200.0).reshape(1, 1, 200).expand(2, 3, 200)

    control = [fp.NeuronId(1, number) for number in range(200)]
    chosen = {n.neuron for n in choose_deciding(Estimated(), Pool(2, [], control))}
    assert set(range(200 - DECIDING, 200)) <= chosen  # the 99 % quantile
    assert {99, 100} <= chosen  # the median
    assert chosen & {49, 50, 149, 150}  # the median absolute deviation
    assert len(chosen) <= 3 * DECIDING
    assert choose_deciding(Estimated(), Pool(2, [], [])) == []

"""Grades: tests counted, bars that rise with the number looked at, controls that are alike, chance."""

import math

import pytest
import torch

import ffnprobe as fp
from ffnprobe.evidence.curve import Bars, draw_alike, far, find_bar
from tests.builders import write_model
from tests.conftest import JORDAN

BARS = Bars(z=4.5, push=0.5, effect=0.2, size=0.4)


@pytest.mark.parametrize(
    ("z", "push", "effect", "letter"),
    [
        (5.0, 1.0, 0.5, "A"),
        (5.0, 1.0, 0.3, "B"),  # less than 2 % of what all are worth
        (4.4, 1.0, 0.5, "B"),
        (4.4, 0.1, 0.5, "C"),
        (4.4, 0.1, 0.1, ""),
        (5.0, 1.0, math.nan, "B"),
        (5.0, 0.55, 0.5, "A?"),  # within a quarter of its bar
        (5.0, 0.45, 0.5, "B?"),
        (4.4, 0.1, 0.21, "C?"),
        (4.4, 0.1, 0.19, ""),  # nothing is not graded, nearly or not
    ],
)
def test_a_grade_counts_the_tests_passed(z, push, effect, letter):
    assert BARS.grade(z, push, effect, rank=1) == letter


def test_an_answer_of_a_high_rank_gets_no_a():
    assert BARS.grade(5.0, 1.0, 0.5, rank=100) == "A"
    assert BARS.grade(5.0, 1.0, 0.5, rank=101) == "B"


def test_the_bar_rises_with_the_number_of_sites_looked_at():
    chance = torch.randn(2000, generator=torch.Generator().manual_seed(0))
    few, many = (find_bar(chance, looked_at=n) for n in (10, 100_000))
    assert chance.quantile(0.99) <= few < many
    # Of a hundred thousand normal values none should pass, nor should one far out move the bar.
    assert many > 4.4
    assert find_bar(torch.cat([chance, torch.tensor([1e6])]), looked_at=100_000) < many + 0.5
    assert find_bar(-10 + chance, looked_at=10) == 0.0
    assert find_bar(chance[:0], looked_at=10) == 0.0
    assert far(1) == pytest.approx(1.645, abs=1e-3)
    assert far(50) == pytest.approx(3.090, abs=1e-3)


def test_the_control_is_alike_in_layer_and_activation():
    sizes = torch.rand(3, 200, generator=torch.Generator().manual_seed(1))
    chosen = [fp.NeuronId(0, 7), fp.NeuronId(2, 100)]
    drawn = draw_alike(sizes, chosen, 50, generator=torch.Generator().manual_seed(2))
    assert len(drawn) == 50
    assert not set(drawn) & set(chosen)
    assert {one.layer for one in drawn} == {0, 2}
    for one in drawn:
        own = chosen[0] if one.layer == 0 else chosen[1]
        gaps = (sizes[own.layer] - sizes[own.layer, own.neuron]).abs()
        assert int((gaps < gaps[one.neuron]).sum()) <= 20


def test_worth_is_what_all_neurons_add(pocket):
    """By TransformerLens's hooks, with every neuron at its contrast mean."""
    from tests.interventions.oracles import hooked

    found = fp.explain(pocket, JORDAN, " basketball", top=3)
    trace, given, token = found.trace, found.question.replacement, pocket.vocab.one(" basketball")

    def every(layer):
        def change(activations):
            activations[:] = given[layer]

        return change

    edits = {layer: every(layer) for layer in range(pocket.config.layers)}
    after = hooked(pocket, list(trace.ids), edits)[0, -1]
    clean = trace.logits[-1]
    centred = (clean[token] - clean.mean()) - (after[token] - after.mean())
    assert found.worth == pytest.approx(float(centred), abs=1e-3)


def test_random_weights_get_no_a(tmp_path):
    model = fp.load(write_model(tmp_path), device="cpu")
    best = 0
    for number in range(20):
        ids = torch.randint(5, 250, (8,), generator=torch.Generator().manual_seed(number))
        for contrast in (None, "none"):
            found = fp.explain(model, ids.tolist(), bos=False, contrast=contrast)
            best += int(found.neurons.grade.str.startswith("A").sum())
    assert best <= 2

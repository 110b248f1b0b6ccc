"""Superposition: measures against numpy, facts against the pushes, signals that share dimensions."""

import numpy as np
import pytest
import torch

import ffnprobe as fp
from analyses.lab.superposition import (
    count_facts,
    draw_like,
    measure_crowding,
    table_crowding,
    train_sparse,
)
from ffnprobe.models import pocket as facts


def test_crowding_equals_numpys():
    directions = torch.randn(30, 7, generator=torch.Generator().manual_seed(0)).double()
    one, array = measure_crowding(directions), directions.numpy()
    eigenvalues = np.linalg.svd(array, compute_uv=False) ** 2
    assert one.effective_dimension == pytest.approx(eigenvalues.sum() ** 2 / (eigenvalues**2).sum())
    units = array / np.linalg.norm(array, axis=1, keepdims=True)
    pairs = (units @ units.T)[np.triu_indices(30, 1)]
    np.testing.assert_allclose(one.cosines, pairs, atol=1e-12)
    noise = [
        np.linalg.norm(np.delete(array, n, 0) @ array[n]) / (array[n] @ array[n]) for n in range(30)
    ]
    np.testing.assert_allclose(one.interference, noise)


def test_directions_at_right_angles_do_not_disturb_each_other():
    one = measure_crowding(torch.eye(6))
    assert one.effective_dimension == pytest.approx(6)
    assert one.interference.tolist() == [0.0] * 6


def test_random_directions_are_as_many_and_as_long(tiny):
    answers = tiny.answers[1]
    drawn = draw_like(answers)
    assert drawn.shape == answers.shape
    torch.testing.assert_close(drawn.norm(dim=-1).float(), answers.norm(dim=-1))
    assert abs(measure_crowding(drawn).cosines.mean()) < 0.02
    assert torch.equal(draw_like(answers), drawn)


def test_every_layer_is_measured_beside_random(tiny):
    table = table_crowding(tiny)
    assert len(table) == 3 * 3
    assert set(table.of) == {"questions", "answers", "random"}
    assert (table.effective_dimension <= 35).all()


def test_a_known_fact_counts_for_the_neurons_that_pushed_it(pocket):
    prompts = list(facts.prompts())[::1500]
    load = count_facts(pocket, prompts, top=3)
    assert load.asked == len(prompts)
    assert int(load.counts.sum()) == 3 * load.known
    known = [
        p for p in prompts
        if fp.run(pocket, p.text).predictions(1)["id"].item() == pocket.vocab.one(p.fact.answer)
    ]  # fmt: skip
    assert len(known) == load.known > 0
    alone = count_facts(pocket, known[:1], top=3)
    top = fp.attribute(fp.run(pocket, known[0].text), known[0].fact.answer).top(3)
    named = {f"L{layer}N{neuron}" for layer, neuron in alone.counts.nonzero().tolist()}
    assert named == set(top.name)
    assert load.table().appearances.sum() == 3 * load.known


def test_rare_signals_share_dimensions_and_common_ones_do_not():
    models = train_sparse(signals=8, dimensions=3, densities=(1.0, 0.02), steps=600)
    dense, rare = models.table().itertuples()
    assert dense.signals_kept <= 4
    assert rare.signals_kept >= 6
    assert rare.interference > dense.interference
    # The dense model keeps the most important signals.
    assert models.lengths[0].argsort(descending=True)[:2].max() <= 3


def test_sparse_models_are_the_same_for_a_seed():
    one, two = (train_sparse(signals=6, dimensions=2, steps=20, seed=1) for _ in range(2))
    assert torch.equal(one.weights, two.weights)
    squared = one.weights[0] @ one.weights[0].mT
    torch.testing.assert_close(one.overlaps[0], squared)

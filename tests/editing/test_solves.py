"""The closed forms, against plain solves of what they claim to solve."""

import numpy as np
import pytest
import torch

from ffnprobe.editing.solves import find_free_space, solve_alphaedit, solve_memit, solve_rome
from ffnprobe.errors import DataRefused

NEURONS, WIDE, FACTS, TOKENS = 13, 7, 3, 90


@pytest.fixture
def drawn():
    random = torch.Generator().manual_seed(3)

    def draw(*shape):
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    corpus = draw(TOKENS, NEURONS)
    return corpus.mT @ corpus / TOKENS, draw(FACTS, NEURONS), draw(FACTS, WIDE)


def test_rome_moves_its_key_exactly_and_the_corpus_least(drawn):
    moment, keys, shifts = drawn
    change = solve_rome(0, moment, keys[0], shifts[0]).whole.double()
    assert torch.allclose(keys[0] @ change, shifts[0], atol=1e-6)
    # Lagrange: the least E|x ΔW|² with k ΔW = δ solves [2C k; kᵀ 0][ΔW; μ] = [0; δ].
    system = np.zeros((NEURONS + 1, NEURONS + 1))
    system[:-1, :-1] = 2 * moment.numpy()
    system[:-1, -1] = system[-1, :-1] = keys[0].numpy()
    wanted = np.zeros((NEURONS + 1, WIDE))
    wanted[-1] = shifts[0].numpy()
    oracle = np.linalg.solve(system, wanted)[:-1]
    assert np.allclose(change.numpy(), oracle, atol=1e-6)


def test_memit_is_the_ridge_regression_it_claims(drawn):
    moment, keys, shifts = drawn
    change = solve_memit(0, moment, keys, shifts, weight=2.5).whole.double()
    # The same as least squares over stacked rows: the corpus, weighed, at zero, and the facts.
    root = np.linalg.cholesky(2.5 * moment.numpy()).T
    rows = np.vstack([root, keys.numpy()])
    wanted = np.vstack([np.zeros((NEURONS, WIDE)), shifts.numpy()])
    oracle, *_ = np.linalg.lstsq(rows, wanted, rcond=None)
    assert np.allclose(change.numpy(), oracle, atol=1e-6)


def test_alphaedit_stays_in_the_free_space_and_spares_earlier_keys(drawn):
    _, keys, shifts = drawn
    random = torch.Generator().manual_seed(4)
    corpus = torch.randn(40, 5, generator=random, dtype=torch.float64) @ torch.randn(
        5, NEURONS, generator=random, dtype=torch.float64
    )
    free = find_free_space(corpus.mT @ corpus / 40, 1e-9)
    assert int(torch.linalg.matrix_rank(free)) == NEURONS - 5
    earlier = torch.randn(2, NEURONS, generator=random, dtype=torch.float64)
    change = solve_alphaedit(0, free, keys, shifts, earlier=earlier, ridge=1e-9).whole.double()
    assert (corpus @ change).abs().max() < 1e-4
    assert (earlier @ change).abs().max() < 1e-4
    assert torch.allclose(keys @ change, shifts, atol=1e-4)


def test_a_singular_second_moment_is_refused(drawn):
    moment, keys, shifts = drawn
    flat = moment.clone()
    flat[:, 2] = flat[:, 1]
    flat[2] = flat[1]
    with pytest.raises(DataRefused, match="singular"):
        solve_rome(0, flat, keys[0], shifts[0])


def test_a_neuron_that_hardly_opens_has_no_part_in_a_change(drawn):
    moment, keys, shifts = drawn
    hardly = torch.ones(NEURONS, dtype=torch.float64)
    hardly[4] = 1e-3  # a thousandth of its activation, here and in the corpus
    moment, keys = moment * hardly * hardly[:, None], keys * hardly
    for change in (
        solve_rome(0, moment, keys[0], shifts[0]).whole,
        solve_memit(0, moment, keys[:1], shifts[:1], weight=1e-6).whole,
    ):
        assert not change[4].any()
        assert change[5].any()
        assert torch.allclose(keys[0] @ change.double(), shifts[0], atol=1e-4)

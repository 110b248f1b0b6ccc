"""Tallies against direct counting, and over a model's own traces."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

import ffnprobe as fp
from analyses.lab import tallies
from analyses.lab.activations import find_bump
from analyses.lab.tallies import EDGES, Tally, table_scan, tally_scores
from ffnprobe.errors import OptionRefused

TEXTS = ["the cat sat on the mat", "the dog ran", "Paris", "the basketball court in Paris"]


def test_shares_equal_direct_counting():
    values = torch.randn(3, 5000, generator=torch.Generator().manual_seed(0)).double()
    bump = find_bump("gelu_new")
    tally = Tally.of(values, bump=bump)
    array = values.numpy()
    np.testing.assert_allclose(tally.below_zero, (array < 0).mean(1))
    inside = (array >= bump.low) & (array <= bump.high)
    np.testing.assert_allclose(tally.in_bump, inside.mean(1))
    np.testing.assert_allclose(tally.deviation, array.std(1))
    np.testing.assert_allclose(tally.counts[1], np.histogram(array[1], EDGES.numpy())[0])
    expected = np.diff(norm.cdf([bump.low, bump.high], array[1].mean(), array[1].std()))
    np.testing.assert_allclose(tally.in_bump_if_normal()[1], expected[0])
    width = float(EDGES[1] - EDGES[0])
    np.testing.assert_allclose(tally.density.sum(-1) * width, 1, atol=1e-3)


def test_tallies_add_up():
    values = torch.linspace(-3, 3, 100).double()[None]
    bump = find_bump("swish")
    parts = Tally.of(values[:, :30], bump=bump) + Tally.of(values[:, 30:], bump=bump)
    whole = Tally.of(values, bump=bump)
    assert torch.equal(parts.counts, whole.counts)
    assert parts.table(["L0"], group="layer").equals(whole.table(["L0"], group="layer"))


def test_a_models_scores_are_counted_without_bos(tiny, monkeypatch):
    monkeypatch.setattr(tallies, "TEXTS_AT_ONCE", 3)
    tally = tally_scores(tiny, TEXTS)
    scores = torch.cat([fp.run(tiny, text).scores[:, 1:] for text in TEXTS], dim=1).double()
    bump = find_bump("gelu_new")
    assert tally.numbers.tolist() == [scores[0].numel()] * 3
    np.testing.assert_allclose(tally.below_zero, (scores < 0).double().mean((1, 2)))
    inside = (scores >= bump.low) & (scores <= bump.high)
    np.testing.assert_allclose(tally.in_bump, inside.double().mean((1, 2)))


def test_no_texts_are_refused(tiny):
    with pytest.raises(OptionRefused, match="no texts to run"):
        tally_scores(tiny, [])


def test_a_scans_shares_bound_the_counted_ones(tiny):
    counted = tally_scores(tiny, TEXTS)
    table = table_scan(fp.scan(tiny, {str(n): text for n, text in enumerate(TEXTS)}), "gelu_new")
    assert table.share_below_zero.tolist() == pytest.approx(counted.below_zero.tolist())
    share = np.array(counted.in_bump.tolist())
    assert (table.in_bump_at_least <= share).all()
    assert (share <= table.in_bump_at_most).all()
    assert (table.in_bump_at_most - table.in_bump_at_least < 0.2).all()

"""Claims: the interval is scipy's, and a verdict follows from planted runs."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from analyses.encoders.claims import compare_pairs, judge_claims, weigh_claims
from analyses.encoders.comparison import EncoderComparison, Outcome
from analyses.encoders.encoder import VARIANTS, EncoderSettings
from analyses.encoders.training import History
from analyses.lab.activations import find_bump
from analyses.lab.tallies import Tally
from ffnprobe.errors import OptionRefused


@pytest.mark.parametrize("count", [2, 3, 5, 8, 20])
def test_intervals_are_students(count):
    values = np.random.default_rng(count).normal(0.1, 1.0, count)
    mean, low, high = compare_pairs(pd.Series(values))
    expected = stats.t.interval(0.95, count - 1, values.mean(), stats.sem(values))
    assert mean == pytest.approx(values.mean())
    assert (low, high) == pytest.approx(expected, rel=1e-9)


def test_one_seed_has_no_interval():
    with pytest.raises(OptionRefused, match="1 seed has no interval"):
        compare_pairs(pd.Series([1.0]))


def tally(values: list[float], variant: str) -> Tally:
    return Tally.of(torch.tensor([values]).double(), bump=find_bump(VARIANTS[variant]))


def plant(variant: str, seed: int, *, better: float, rough: float) -> Outcome:
    """Write down a run by hand: an accuracy, gradients that swing by `rough`, chosen scores."""
    accuracy = 0.7 + 0.001 * seed + better
    gradients = [1 - rough, 1 + rough] * 4
    history = History([0.5] * 8, gradients, [0.5, 0.5], [0.5, accuracy])
    gathered = [-1.2] * 9 + [30.0 + seed]
    leaving = [0.0, 1.0, 2.0] if variant == "relu" else [-0.1, -0.2 - 0.001 * seed, 2.0]
    return Outcome(
        variant, seed, 100, history, tally([-0.1, 0.1, 0.3], variant),
        tally(gathered, variant), tally(leaving, variant),
    )  # fmt: skip


@pytest.fixture
def planted() -> EncoderComparison:
    """SwiGLU is better and steadier for sure; the equal one is better on average only."""
    better = {"swiglu": (0.05, 0.051, 0.05, 0.051), "swiglu_equal": (0.05, -0.03, 0.04, -0.02)}
    outcomes = [
        plant(v, seed, better=better.get(v, (0.0,) * 4)[seed], rough=0.1 if v == "swiglu" else 0.3)
        for seed in range(4)
        for v in VARIANTS
    ]
    return EncoderComparison(None, EncoderSettings(), tuple(outcomes))  # type: ignore[arg-type]


def test_planted_claims_are_judged_rightly(planted):
    verdicts = judge_claims(weigh_claims(planted)).set_index(["claim", "ffn"])["verdict"]
    assert verdicts["more accurate", "swiglu"] == "held"
    assert verdicts["more accurate", "swiglu_equal"] == "not held"
    assert verdicts["steadier gradients", "swiglu"] == "held"
    assert verdicts["steadier gradients", "swiglu_equal"] == "not held"
    assert verdicts["keeps small negatives", "swiglu"] == "held"
    assert verdicts["gathers in the bump", "swish"] == "held"


def test_a_row_holds_what_the_run_did(planted):
    row = plant("swish", 2, better=0.0, rough=0.3).row()
    assert row["accuracy"] == pytest.approx(0.702)
    assert row["unsteadiness"] == pytest.approx(np.std([0.7, 1.3] * 2, ddof=1))
    assert row["in_bump"] == pytest.approx(0.9)
    assert row["in_bump_at_start"] == 0.0
    assert row["small_negative"] == pytest.approx(2 / 3)
    assert planted.means().ffn.tolist() == list(VARIANTS)

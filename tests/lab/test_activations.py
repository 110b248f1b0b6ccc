"""Activation functions against scipy's closed forms, finite differences and the Lambert W function."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import erf, expit, lambertw

from analyses.lab.activations import CURVES, NAMES, find_bump, find_curve, find_slope
from ffnprobe.errors import OptionRefused

POINTS = np.linspace(-6, 6, 1001) + 1e-4  # not on 0, where ReLU has no derivative


def gelu_new(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


CLOSED = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))),
    "gelu_new": gelu_new,
    "swish": lambda x: x * expit(x),
}


@pytest.mark.parametrize("name", CURVES)
def test_curves_equal_their_closed_forms(name):
    values = find_curve(name)(torch.from_numpy(POINTS)).numpy()
    np.testing.assert_allclose(values, CLOSED[name](POINTS), rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", CURVES)
def test_slopes_equal_finite_differences(name):
    step = 1e-6
    expected = (CLOSED[name](POINTS + step) - CLOSED[name](POINTS - step)) / (2 * step)
    slopes = find_slope(name, torch.from_numpy(POINTS)).numpy()
    np.testing.assert_allclose(slopes, expected, rtol=0, atol=1e-8)


def test_slopes_equal_closed_forms():
    x = POINTS
    slopes = {name: find_slope(name, torch.from_numpy(x)).numpy() for name in ("gelu", "swish")}
    density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    normal = 0.5 * (1 + erf(x / math.sqrt(2)))
    np.testing.assert_allclose(slopes["gelu"], normal + x * density, atol=1e-14)
    np.testing.assert_allclose(slopes["swish"], expit(x) * (1 + x * (1 - expit(x))), atol=1e-14)


def test_swishs_minimum_is_lambert_w():
    w = lambertw(1 / math.e).real
    bump = find_bump("swish")
    assert (bump.at, bump.depth) == pytest.approx((-(1 + w), -w), abs=1e-9)
    assert f"{bump.depth:.6f} at {bump.at:.6f}" == "-0.278465 at -1.278465"


def test_gpt2s_gelu_has_the_published_minimum():
    bump = find_bump("gelu_new")
    assert f"{bump.depth:.6f} at {bump.at:.4f}" == "-0.170041 at -0.7525"


@pytest.mark.parametrize("name", ["gelu", "gelu_new", "swish"])
def test_bumps_end_at_half_depth(name):
    bump, curve = find_bump(name), CLOSED[name]
    lowest = minimize_scalar(curve, bounds=(-3, 0), method="bounded", options={"xatol": 1e-9})
    assert bump.depth == pytest.approx(lowest.fun, abs=1e-12)
    half = bump.depth / 2
    assert curve(np.array([bump.low, bump.high])) == pytest.approx(half, abs=1e-14)
    assert bump.low < bump.at < bump.high
    scores = torch.tensor([bump.low - 1e-6, bump.low + 1e-6, bump.at, bump.high + 1e-6])
    assert bump.holds(scores.double()).tolist() == [False, True, True, False]


def test_swiglus_bump_is_its_gates():
    assert find_bump("swiglu") == find_bump("swish")
    assert find_bump("relu") is None


def test_an_unknown_function_lists_the_known():
    with pytest.raises(OptionRefused) as error:
        find_curve("selu")
    assert '"selu" is not an activation function of the lab.' in str(error.value)
    assert all(name in str(error.value) for name in NAMES)

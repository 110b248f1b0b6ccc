"""The gradient estimate: the slope it claims to be, and its agreement as scipy ranks it."""

import pytest
import torch
from scipy.stats import spearmanr

import ffnprobe as fp
from ffnprobe.errors import OptionRefused
from tests.interventions.oracles import in_float64, some_means


@pytest.mark.parametrize("versus", [None, 11])
def test_estimate_is_the_slope_of_the_exact_effect(
    tiny_trace: fp.Trace, versus: int | None
) -> None:
    trace = in_float64(tiny_trace)
    means = some_means(trace.model).double()
    estimates = fp.estimate(trace, 280, versus=versus, replace=means)
    assert estimates.values.shape == (3, len(trace), 52)
    for position in (-1, 4):
        # A small step from the activation to its replacement, exactly, and scaled up.
        clean, step = trace.activations[:, position], 1e-6
        nearby = clean + step * (means - clean)
        exact = fp.ablate(trace, 280, versus=versus, replace=nearby, position=position)
        slope = exact.values / step
        assert torch.allclose(estimates.values[:, position], slope, atol=1e-4, rtol=1e-4)


def test_pieces_and_positions_add_up(tiny_trace: fp.Trace) -> None:
    model = tiny_trace.model
    first, second = model.vocab.ids(" basketball Paris")
    estimates = fp.estimate(tiny_trace, " basketball Paris")
    forced = fp.run(model, [*tiny_trace.ids, first], bos=False)
    pieces = fp.estimate(tiny_trace, first), fp.estimate(forced, second)
    wanted = pieces[0].values + pieces[1].values[:, : len(tiny_trace)]
    assert torch.allclose(estimates.values, wanted, atol=1e-4)
    both = estimates.values[:, 2] + estimates.values[:, 3]
    assert torch.allclose(estimates.over([2, 3]), both)


def test_agreement_is_spearmans(tiny_trace: fp.Trace) -> None:
    estimates, effects = fp.estimate(tiny_trace, 280), fp.ablate(tiny_trace, 280, position=4)
    known = spearmanr(estimates.values[:, 4].flatten(), effects.values.flatten()).statistic
    assert estimates.agreement(effects) == pytest.approx(known, abs=1e-9)
    part = fp.ablate(tiny_trace, 280, neurons=["L2"])
    known = spearmanr(estimates.values[2, -1], part.values[2]).statistic
    assert estimates.agreement(part) == pytest.approx(known, abs=1e-9)


def test_estimate_is_labelled_and_leaves_the_model(tiny_trace: fp.Trace) -> None:
    estimates = fp.estimate(tiny_trace, 280)
    assert estimates.provenance.settings == {"method": "gradient", "replace": "zero"}
    assert list(estimates.top(2).columns[:5]) == [
        "name",
        "layer",
        "neuron",
        "activation",
        "estimate",
    ]
    assert set(estimates.top(3, neurons=["L1"]).layer) == {1}
    assert "an estimate of the effect" in estimates._repr_html_()
    assert not estimates.values.requires_grad
    assert tiny_trace.model.is_unchanged()
    with pytest.raises(OptionRefused, match=r"these results differ in their answer: .* and "):
        estimates.agreement(fp.ablate(tiny_trace, 5, neurons=["L0N0"]))
    folded = fp.ablate(tiny_trace, 280, neurons=["L0N0"], convention="folded")
    with pytest.raises(OptionRefused, match="differ in their convention: centred and folded"):
        estimates.agreement(folded)
    given = fp.ablate(tiny_trace, 280, neurons=["L0N0"], replace=some_means(tiny_trace.model))
    with pytest.raises(OptionRefused, match="differ in their replace: zero and a given tensor"):
        estimates.agreement(given)

"""A neuron's numbers against scipy, numpy and float64, and the kinds read from them."""

import numpy as np
import pytest
import scipy.stats
import torch

import ffnprobe as fp
from ffnprobe.reading.measures import Moments, name_kind
from ffnprobe.reading.spectrum import token_directions
from tests.reading.conftest import ZERO


@pytest.fixture(scope="module", params=["tiny", "planted", "pocket"])
def surveyed(request):
    model = request.getfixturevalue(request.param)
    return model, fp.survey(model, layers=[1], top=3).table


def test_moments_are_scipys(surveyed):
    model, neurons = surveyed
    w, u = model.answers[1].double().numpy(), model.unembedding.double().numpy()
    cosines = (w @ u.T) / np.linalg.norm(w, axis=1)[:, None] / np.linalg.norm(u, axis=1)
    close = {"rtol": 1e-3, "atol": 1e-6}
    np.testing.assert_allclose(neurons["vocab_mean"], cosines.mean(1), **close)
    np.testing.assert_allclose(neurons["vocab_variance"], cosines.var(1), **close)
    np.testing.assert_allclose(
        neurons["vocab_skew"], scipy.stats.skew(cosines, axis=1), rtol=1e-3, atol=1e-4
    )
    kurtosis = scipy.stats.kurtosis(cosines, axis=1, fisher=False)
    np.testing.assert_allclose(neurons["vocab_kurtosis"], kurtosis, **close)


def test_norms_biases_and_cosines(surveyed):
    model, neurons = surveyed
    q, w = model.questions[1].double(), model.answers[1].double()
    expected = {
        "question_norm": q.norm(dim=-1),
        "question_bias": model.question_biases[1],
        "answer_norm": w.norm(dim=-1),
        "reads_writes": torch.cosine_similarity(q, w, dim=-1),
    }
    for column, values in expected.items():
        np.testing.assert_allclose(neurons[column], values.numpy(), rtol=1e-4, atol=1e-5)


def test_null_space_is_of_the_bottom_singular_directions(surveyed):
    model, neurons = surveyed
    u = (model.unembedding - model.mean_unembedding).double().numpy()
    _, sizes, directions = np.linalg.svd(u, full_matrices=False)
    bottom = directions[-max(2, model.config.d_model // 64) :]
    assert sizes[-1] < 1e-4 * sizes[0], "one of them is the constant direction"
    w = model.answers[1].double().numpy()
    w = w - w.mean(1, keepdims=True)
    shares = np.linalg.norm(w @ bottom.T, axis=1) / np.linalg.norm(w, axis=1)
    np.testing.assert_allclose(neurons["null_space"], shares, atol=2e-3)


def test_spreads_are_standard_deviations_over_tokens(pocket):
    known = token_directions(pocket)
    for spectrum, tokens, rows in (
        (known.unembedding, pocket.unembedding, pocket.answers[2]),
        (known.embedding, pocket.embedding, pocket.questions[2]),
    ):
        direct = (rows.double() @ tokens.double().T).std(-1, correction=0)
        torch.testing.assert_close(spectrum.spreads(rows).double(), direct, rtol=1e-4, atol=0)
        mean = tokens.double().mean(0)
        torch.testing.assert_close(spectrum.mean.double(), mean, rtol=1e-3, atol=1e-6)
    norms = pocket.unembedding.norm(dim=-1)
    torch.testing.assert_close(known.unembedding_norms, norms, rtol=1e-5, atol=1e-6)


def test_an_answer_of_nothing_has_no_moments(planted):
    layer, neuron = ZERO
    row = fp.survey(planted, layers=[layer]).table.iloc[neuron]
    assert row.answer_norm == 0
    assert row.vocab_mean == row.vocab_variance == 0
    assert np.isnan([row.vocab_skew, row.vocab_kurtosis, row.reads_writes, row.null_space]).all()
    assert row.kind == "unlabelled"


MOMENTS = {"mean": 0.0, "variance": 0.0, "skew": 1.0, "kurtosis": 3.0}
NUMBERS = {"null_space": 0.1, "relative_norm": 1.0, "depth": 1.0, "d_model": 100}


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({}, "unlabelled"),
        ({"kurtosis": 10.1}, "prediction"),
        ({"kurtosis": 10.1, "skew": -1.0}, "suppression"),
        ({"kurtosis": 10.0}, "unlabelled"),
        ({"variance": 0.031}, "partition"),
        ({"variance": 0.031, "kurtosis": 4.1}, "unlabelled"),
        ({"null_space": 0.5, "relative_norm": 2.0, "kurtosis": 20.0}, "entropy"),
        ({"null_space": 0.5, "relative_norm": 2.0, "depth": 0.5}, "unlabelled"),
        ({"null_space": 0.5}, "unlabelled"),
    ],
)
def test_kinds_by_the_documented_thresholds(changed, kind):
    moments = Moments(**{name: changed.get(name, usual) for name, usual in MOMENTS.items()})
    numbers = {name: changed.get(name, usual) for name, usual in NUMBERS.items()}
    assert name_kind(moments, **numbers) == kind


def test_thresholds_move_the_kinds(pocket):
    usual = fp.survey(pocket, layers="5").table
    strict = fp.survey(pocket, layers="5", thresholds=fp.Thresholds(kurtosis=1e9)).table
    assert set(usual.kind[usual.vocab_kurtosis > 10]) <= {"prediction", "suppression", "entropy"}
    assert not set(strict.kind) & {"prediction", "suppression"}
    assert strict.attrs["provenance"]["settings"]["thresholds"]["kurtosis"] == 1e9


def test_a_planted_null_space_answer_is_an_entropy_neuron(tiny, tmp_path):
    from tests.builders import TINY, random_weights, write_model

    weights = random_weights(TINY)
    u = (tiny.unembedding - tiny.mean_unembedding).double()
    weakest = torch.linalg.svd(u, full_matrices=False).Vh[-2].float()
    weights["h.2.mlp.c_proj.weight"][9] = 5 * weakest
    reading = fp.read(fp.load(write_model(tmp_path / "entropy", TINY, weights)), "L2N9")
    assert reading.kind == "entropy"
    assert reading.null_space > 0.99
    assert "its token lists mean nothing" in str(reading)


def test_the_whole_null_space_counts_where_the_vocabulary_is_smaller_than_d_model(tmp_path):
    from dataclasses import replace

    from tests.builders import TINY, random_weights, write_model

    config = replace(TINY, d_model=640, d_mlp=52, vocab=301, heads=5)
    model = fp.load(write_model(tmp_path, config, random_weights(config)))
    u = (model.unembedding.double() - model.unembedding.double().mean(0)).numpy()
    _, sizes, directions = np.linalg.svd(u, full_matrices=True)
    rank = int((sizes > 1e-6 * sizes[0]).sum())
    assert rank == 300
    w = model.answers[2].double().numpy()
    w = w - w.mean(1, keepdims=True)
    shares = np.linalg.norm(w @ directions[rank:].T, axis=1) / np.linalg.norm(w, axis=1)
    table = fp.survey(model, layers="2").table
    np.testing.assert_allclose(table["null_space"], shares, atol=1e-5)
    assert np.median(shares) > 0.7
    # A random answer has that much of it by chance, which does not make it an entropy neuron.
    labelled = fp.survey(model, thresholds=fp.Thresholds(relative_norm=0)).table
    assert "entropy" not in set(labelled.kind)


def test_a_large_vector_common_to_all_tokens_costs_no_digits(tiny, tmp_path):
    """The account of the same model without that vector: z and null space are of differences."""
    from dataclasses import replace

    from tests.builders import TINY, random_weights, write_model

    config = replace(TINY, is_tied=False)
    weights = random_weights(config)
    weights["ln_f.weight"] = torch.ones(35)
    # Numbers that fp32 holds to the last bit with and without the vector added.
    weights["lm_head.weight"] = (weights["lm_head.weight"] * 1024).round() / 1024
    common = 4096.0 * torch.randint(-1, 2, [35], generator=torch.Generator().manual_seed(5))
    plain = fp.load(write_model(tmp_path / "plain", config, dict(weights)))
    weights["lm_head.weight"] = weights["lm_head.weight"] + common
    moved = fp.load(write_model(tmp_path / "moved", config, weights))
    for one, other in zip(
        *(fp.survey(m, layers="1").table.null_space.tolist() for m in (plain, moved)), strict=True
    ):
        assert one == pytest.approx(other, abs=1e-5)
    first, second = (
        fp.search(m, " basketball", top=156).table.sort_values("name") for m in (plain, moved)
    )
    np.testing.assert_allclose(first.z, second.z, rtol=1e-4, atol=1e-5)

"""Twins planted by hand: neurons permuted, streams rotated, answers scaled; and what is refused."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

import ffnprobe as fp
from ffnprobe.corpora.twins import find_twins
from ffnprobe.errors import DataRefused, OptionRefused
from tests.builders import TINY, random_weights, write_model
from tests.families.builders import write_family
from tests.reading.formulas import project_answers, project_questions

TEXTS = {
    "one": "the cat sat on the mat and the dog ran to the court",
    "two": "the dog sat in Paris",
}


def rotation(size: int, *, seed: int = 1) -> Tensor:
    """Draw a rotation that leaves the constant direction where it is, as LayerNorm does."""
    drawn = torch.randn(
        size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    drawn[:, 0] = 1
    basis = torch.linalg.qr(drawn).Q
    turned = torch.linalg.qr(drawn[1:, 1:]).Q
    whole = torch.eye(size, dtype=torch.float64)
    whole[1:, 1:] = turned
    return basis @ whole @ basis.T


def disguise(weights: dict[str, Tensor], orders: list[Tensor]) -> dict[str, Tensor]:
    """Permute the neurons of each layer, scale their answers, and rotate the residual stream."""
    turn = rotation(TINY.d_model)
    told = {name: tensor.double() for name, tensor in weights.items()}
    tokens = told["wte.weight"] * told["ln_f.weight"]
    found = dict(told)
    found["lm_head.weight"] = (tokens - tokens.mean(-1, keepdim=True)) @ turn
    found["wte.weight"] = told["wte.weight"] @ turn
    found["ln_f.weight"] = torch.ones(TINY.d_model)
    for layer, order in enumerate(orders):
        rows = told[f"h.{layer}.mlp.c_proj.weight"]
        rows = rows - rows.mean(-1, keepdim=True)
        found[f"h.{layer}.mlp.c_proj.weight"] = 3.5 * rows[order] @ turn
        asked = told[f"h.{layer}.ln_2.weight"][:, None] * told[f"h.{layer}.mlp.c_fc.weight"]
        asked = asked - asked.mean(0, keepdim=True)
        found[f"h.{layer}.mlp.c_fc.weight"] = turn.T @ asked[:, order]
        found[f"h.{layer}.ln_2.weight"] = torch.ones(TINY.d_model)
    return {name: tensor.float() for name, tensor in found.items()}


@pytest.fixture(scope="module")
def orders() -> list[Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randperm(TINY.d_mlp, generator=generator) for _ in range(TINY.layers)]


@pytest.fixture(scope="module")
def disguised(orders: list[Tensor], tmp_path_factory: pytest.TempPathFactory) -> fp.Model:
    from dataclasses import replace

    folder = tmp_path_factory.mktemp("disguised")
    config = replace(TINY, is_tied=False)
    return fp.load(
        write_model(folder, config, disguise(random_weights(TINY), orders)), device="cpu"
    )


def test_permuted_and_rotated_neurons_are_all_found(tiny, disguised, orders):
    found = fp.match(tiny, disguised).neurons
    where = [{int(old): new for new, old in enumerate(order)} for order in orders]
    expected = [
        f"L{layer}N{where[layer][n]}" for layer, n in zip(found.layer, found.neuron, strict=True)
    ]
    assert found.twin.tolist() == expected
    assert found.is_mutual.all()
    assert found.correlation.tolist() == pytest.approx([1.0] * len(found), abs=1e-4)
    assert found.question_correlation.tolist() == pytest.approx([1.0] * len(found), abs=1e-4)


def test_correlations_are_those_of_whole_projections(tiny, tmp_path):
    other = fp.load(write_model(tmp_path / "other", seed=5), device="cpu")
    found = fp.match(tiny, other).neurons
    ours, theirs = (project_answers(m, m.answers.flatten(0, 1), "centred") for m in (tiny, other))
    whole = torch.corrcoef(torch.cat([ours, theirs]))[: len(ours), len(ours) :]
    assert found.correlation.tolist() == pytest.approx(whole.amax(1).tolist(), abs=1e-5)
    best = whole.argmax(1)
    assert found.twin.tolist() == [f"L{n // 52}N{n % 52}" for n in best.tolist()]
    assert found.is_mutual.tolist() == (whole.argmax(0)[best] == torch.arange(156)).tolist()
    asked, answered = (
        project_questions(m, m.questions.flatten(0, 1), "embed") for m in (tiny, other)
    )
    pairs = [
        float(torch.corrcoef(torch.stack([asked[n], answered[m]]))[0, 1])
        for n, m in enumerate(best)
    ]
    assert found.question_correlation.tolist() == pytest.approx(pairs, abs=1e-5)


def test_unrelated_models_have_no_more_twins_than_chance(tiny, tmp_path):
    other = fp.load(write_model(tmp_path / "other", seed=5), device="cpu")
    match = fp.match(tiny, other)
    # Of 156 neurons the best of one layer's controls is passed by about one a layer.
    assert match.twins <= 6
    assert abs(match.neurons.correlation.median() - match.neurons.control.median()) < 0.03


def test_blocks_do_not_change_what_is_found(tiny, disguised, monkeypatch):
    whole = find_twins(tiny, disguised, seed=0)
    monkeypatch.setattr("ffnprobe.corpora.twins.ROWS_AT_ONCE", 7)
    monkeypatch.setattr("ffnprobe.corpora.twins.TOKENS_AT_ONCE", 13)
    parts = find_twins(tiny, disguised, seed=0)
    assert torch.equal(whole.numbers, parts.numbers)
    assert torch.equal(whole.is_mutual, parts.is_mutual)
    assert parts.controls.tolist() == pytest.approx(whole.controls.tolist(), abs=1e-4)


def test_a_neuron_that_answers_nothing_has_no_twin(tmp_path):
    weights = random_weights(TINY)
    weights["h.1.mlp.c_proj.weight"][4] = 0
    model = fp.load(write_model(tmp_path / "zero", TINY, weights), device="cpu")
    row = fp.match(model, model).neurons.set_index("name").loc["L1N4"]
    assert (row.correlation, bool(row.is_twin)) == (0, False)


def test_the_sign_of_a_gated_neuron_is_free(tmp_path):
    folder = write_family(tmp_path / "gated", "llama")
    model = fp.load(folder, device="cpu")
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    for name in weights:
        if "up_proj" in name or "down_proj" in name:
            weights[name] = -weights[name]
    other = Path(write_family(tmp_path / "negated", "llama"))
    save_file(weights, other / "model.safetensors")
    found = fp.match(model, fp.load(other, device="cpu")).neurons
    assert found.twin.tolist() == found.name.tolist()
    assert found.correlation.tolist() == pytest.approx([-1.0] * len(found), abs=1e-4)
    assert found.gate_correlation.tolist() == pytest.approx([1.0] * len(found), abs=1e-4)


def test_two_scans_add_activations(tiny, disguised):
    # Neurons of one model are their own twins, so that they share every example.
    scan = fp.scan(tiny, TEXTS, top=2)
    found = fp.match(tiny, tiny, scans=(scan, scan)).neurons
    assert found.shared_examples.tolist() == [1.0] * len(found)
    assert found.activation_correlation.dropna().tolist() == pytest.approx([1.0] * len(found))
    other = fp.scan(disguised, TEXTS, top=2)
    assert fp.match(tiny, disguised, scans=(scan, other)).neurons.shared_examples.mean() < 1


def test_what_cannot_be_matched_is_refused(tiny, pocket, disguised):
    with pytest.raises(DataRefused, match=r"different vocabularies \(301 and [\d,]+ tokens\)"):
        fp.match(tiny, pocket)
    scan = fp.scan(tiny, TEXTS, top=2)
    with pytest.raises(OptionRefused, match="scans = 1 scans: match takes one of each model"):
        fp.match(tiny, tiny, scans=[scan])
    with pytest.raises(DataRefused, match="the scan is of other weights"):
        fp.match(tiny, disguised, scans=(scan, scan))
    other = fp.scan(tiny, {"one": "the cat"}, top=2)
    with pytest.raises(DataRefused, match="the scans are of different texts or settings"):
        fp.match(tiny, tiny, scans=(scan, other))
    with pytest.raises(OptionRefused, match=r"top = 157: there are 156 neurons\."):
        fp.match(tiny, tiny, top=157)

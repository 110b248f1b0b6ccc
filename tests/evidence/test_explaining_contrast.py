"""Explanations with contrast prompts: this subject, not this kind of sentence."""

import pytest
import torch

import ffnprobe as fp
from ffnprobe.tracing.trace import find_sinks
from tests.builders import TINY, random_weights, write_model
from tests.conftest import JORDAN

OTHERS = [f"{name} plays the sport of" for name in ("Tiger Woods", "Babe Ruth", "Lionel Messi")]


@pytest.fixture(scope="module")
def explanation(pocket):
    return fp.explain(pocket, JORDAN, " basketball", contrast=OTHERS, top=4)


@pytest.fixture(scope="module")
def contrast(jordan):
    return fp.contrast_with(jordan, " basketball", OTHERS)


def test_positions_are_the_subject_and_the_last(explanation):
    assert "␣Jordan" in set(explanation.neurons.token)
    assert not set(explanation.neurons.token) & {"<|endoftext|>"}
    assert explanation.subject == (1, 2)
    assert explanation.provenance.settings["contrast"] == OTHERS
    assert explanation.provenance.settings["replace"] == "contrast mean"


def test_effects_are_those_of_ablate_with_contrast(explanation, contrast, jordan):
    for row in explanation.neurons.itertuples():
        found = fp.ablate(
            jordan, " basketball", contrast=contrast, position=row.position, neurons=[row.name]
        )
        assert row.effect == pytest.approx(found.top(1).effect.item(), abs=1e-4)
        mean = contrast.replacement[row.layer, row.position, row.neuron]
        assert row.set_to == pytest.approx(float(mean), abs=1e-6)


def test_the_parts_give_attention_to_its_owners_and_add_up(explanation):
    *parts, total = explanation.parts.push
    assert sum(parts) == pytest.approx(total, abs=1e-6)
    assert total == pytest.approx(float(explanation.trace.logits[-1].max()), abs=1e-4)
    named = explanation.parts.part.tolist()
    assert "other neurons at Michael ␣Jordan, through attention" in named
    assert "attention" not in named
    assert abs(explanation.parts.push[explanation.parts.part == "rounding"].item()) < 1e-3


def test_rows_of_facts_are_contrast_prompts(pocket):
    rows = fp.find_contrast_rows("pocket", JORDAN, " basketball", most=3)
    found = fp.explain(pocket, JORDAN, " basketball", contrast=rows, top=2, effects=False)
    assert found.options.contrast == tuple(row.prompt for row in rows)


def test_sinks_are_the_first_and_those_far_beyond():
    activations = torch.rand(2, 6, 5, generator=torch.Generator().manual_seed(0)) + 1
    assert find_sinks(activations) == (0,)
    activations[1, 2, 3] = -100.0
    assert find_sinks(activations) == (0, 2)
    activations[1, 5, 3] = 100.0  # the last position is never one
    assert find_sinks(activations) == (0, 2)


@pytest.fixture(scope="module")
def with_sink(tmp_path_factory):
    """A random model with a neuron that opens a hundred times wider than others at token 44."""
    weights = random_weights(TINY, seed=5)
    direction = torch.randn(TINY.d_model, generator=torch.Generator().manual_seed(6))
    weights["wte.weight"][44] = 20 * direction
    weights["h.0.mlp.c_fc.weight"][:, 7] = 100 * direction / direction.norm()
    weights["h.0.mlp.c_fc.bias"][7] = -350.0
    model = fp.load(write_model(tmp_path_factory.mktemp("sink"), weights=weights), device="cpu")
    trace = fp.run(model, [5, 6, 44, 8, 9, 10], bos=False)
    sizes = trace.activations.abs().amax(dim=(0, 2))
    assert sizes[2] > 10 * sizes.quantile(0.5)
    return model


def test_a_contrast_prompts_sink_takes_no_part(with_sink):
    """Token 44 stands in the contrast prompt, aligned with a common word."""
    trace = fp.run(with_sink, [5, 6, 20, 8, 9, 10], bos=False)
    other = fp.run(with_sink, [5, 30, 44, 32, 9, 10], bos=False)
    contrast = fp.contrast_with(trace, 17, [other])
    assert contrast.alignment.aside == (2,)
    assert contrast.set_aside == (f"{trace.tokens[2]} at 2",)
    assert contrast.unmatched == ()
    assert torch.equal(contrast.replacement[:, 2], trace.activations[:, 2])
    assert torch.equal(contrast.replacement[:, 1], other.activations[:, 1])
    effects = fp.ablate(trace, 17, contrast=contrast, position=2, neurons=["L0"])
    assert not effects.values[0].any()
    found = fp.explain(with_sink, [5, 6, 20, 8, 9, 10], 17, contrast=[other], bos=False)
    assert found.provenance.settings["aligned_with_sinks"] == [f"{trace.tokens[2]} at 2"]
    assert {1, 3} & set(found.neurons.position)
    assert not {0, 2} & set(found.neurons.position)


@pytest.mark.parametrize("contrast", ["none", [5, 30, 31, 32, 9, 10]])
def test_no_neuron_is_graded_at_an_attention_sink(with_sink, contrast):
    """Neurons at the subject are, each with the head that carries it."""
    given = contrast if contrast == "none" else [fp.run(with_sink, contrast, bos=False)]
    found = fp.explain(with_sink, [5, 6, 44, 8, 9, 10], 17, contrast=given, top=30, bos=False)
    first, second = found.provenance.settings["set_aside"]
    tokens = found.trace.tokens
    assert first == f"{tokens[0]} at 0 (first position)"
    assert second.startswith(f"{tokens[2]} at 2 (activation ")
    assert second.endswith(" times the median)")
    for table in (found.neurons, found.against, found.paths):
        assert not set(table.position) & {0, 2}
    earlier = found.neurons[found.neurons.position < 5]
    carried = earlier[earlier.layer < 2]
    assert len(carried)
    assert all(head.startswith("L") for head in carried.through)


def test_by_default_it_is_compared_with_others_it_finds(pocket):
    """As with the same prompts given; `none` compares with nothing, and so does a replacement."""
    found = fp.explain(pocket, JORDAN, " basketball", top=3)
    known = found.question.contrast
    assert len(known.others) == 12
    same = fp.explain(pocket, JORDAN, " basketball", top=3, contrast=known)
    for name in ("neurons", "curve", "sites", "parts"):
        assert found.tables()[name].equals(same.tables()[name]), name
    assert found.options.contrast is None
    assert same.options.contrast == tuple(other.prompt for other in known.others)
    alone = fp.explain(pocket, JORDAN, " basketball", top=3, contrast="none")
    means = fp.explain(pocket, JORDAN, " basketball", top=3, replace="mean")
    assert alone.question.contrast is means.question.contrast is None
    assert alone.neurons.equals(means.neurons)
    assert alone.options.contrast == "none"
    assert alone.provenance.settings["replace"] == "mean"
    assert alone.verdict[1].endswith("It was compared with nothing.")

"""Every family: the numbers are Hugging Face's, and the account closes."""

import pytest
import torch

import ffnprobe as fp
from ffnprobe.errors import OptionRefused
from ffnprobe.interventions.ablation import ablate, ablate_layers
from ffnprobe.interventions.estimates import estimate
from ffnprobe.models.checkpoint import read_weights
from ffnprobe.models.forward import forward
from ffnprobe.models.step import (
    activate_neurons,
    hooks_of,
    measure_scale,
    normalise,
    score_questions,
    write,
)
from tests.families.conftest import TEXT


@pytest.fixture(scope="session")
def network(folder):
    """Hugging Face's own model, from the same files."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()


def test_logits_are_hugging_face_s(model, network, trace):
    with torch.no_grad():
        theirs = network(torch.tensor([trace.ids])).logits[0]
    torch.testing.assert_close(trace.logits, theirs, rtol=1e-4, atol=1e-4)


def test_parameters_are_all_counted(model, network):
    assert model.config.parameters() == sum(p.numel() for p in network.parameters())


def test_questions_gates_and_answers_are_what_the_hooks_see(model, trace):
    for layer in range(3):
        seen = normalise(model, trace.before_mlp[layer])
        scores, gates = score_questions(model, layer, seen)
        torch.testing.assert_close(scores, trace.scores[layer], rtol=1e-4, atol=1e-4)
        assert (gates is None) == (not model.config.is_gated)
        if gates is not None:
            torch.testing.assert_close(gates, trace.gate_scores[layer], rtol=1e-4, atol=1e-4)
        activations = activate_neurons(model, scores, gates)
        torch.testing.assert_close(activations, trace.activations[layer], rtol=1e-4, atol=1e-4)
        written = write(model, layer, trace.activations[layer])
        # The stages raise unless this leads to the stream the model had after the layer.
        torch.testing.assert_close(fp.stages(trace, layer).output, written, rtol=1e-4, atol=1e-4)


def test_a_gated_activation_may_be_negative_and_large(model, trace):
    lowest = float(trace.activations.min())
    assert lowest < -0.5 if model.config.is_gated else lowest > -0.18


@pytest.mark.parametrize("position", [-1, 3])
@pytest.mark.parametrize("versus", [None, " football"])
def test_the_account_closes(trace, position, versus):
    for convention in ("centred", "folded"):
        pushes = fp.attribute(
            trace, " basketball", versus=versus, position=position, convention=convention
        )
        assert abs(pushes.remainder) < 1e-3
        logits = trace.logits[position]
        vocab = trace.model.vocab
        own = logits[vocab.one(" basketball")]
        own = own - logits[vocab.one(versus)] if versus else own
        assert float(pushes.by_part().push.sum()) == pytest.approx(float(own), abs=1e-3)


def test_a_score_is_accounted_for(trace):
    for layer in range(3):
        drivers = fp.drivers(trace, f"L{layer}N7", position=4)
        assert float(drivers.by_part().drive.sum()) == pytest.approx(drivers.score, abs=1e-3)
        heads = drivers.account.heads
        if heads.numel():
            drives = drivers.heads(None).groupby(["layer", "head"]).drive.sum().to_numpy()
            by_head = torch.tensor(drives).reshape(heads.shape).to(heads)
            torch.testing.assert_close(by_head, heads, rtol=1e-3, atol=1e-4)


def test_the_lens_ends_at_the_model_s_own_word(trace):
    table = fp.lens(trace, " basketball").table
    own = trace.logits[-1, trace.model.vocab.one(" basketball")]
    assert table.logit.iloc[-1] == pytest.approx(float(own), abs=1e-3)


def hooked(model, ids, layer, neurons, places):
    """The answer's logits where hooks set neurons to zero at some positions."""

    def tap(activations):
        changed = activations.clone()
        for place in places:
            changed[:, place, neurons] = 0.0
        return changed

    return forward(model, torch.tensor([ids]), {("activations", layer): tap})[0, -1]


def uncapped(model, logits):
    """Logits before the cap, where a family caps them: effects are told in these."""
    cap = model.config.logit_cap
    return logits if cap is None else cap * torch.atanh(logits.double() / cap)


@pytest.mark.parametrize("position", [-1, [2, 5]])
def test_the_exact_sweep_is_one_hooked_pass_a_neuron(model, trace, position):
    token, other = model.vocab.one(" basketball"), model.vocab.one(" football")
    centred = fp.ablate(trace, token, position=position)
    effects = fp.ablate(trace, token, position=position, convention="folded")
    against = fp.ablate(trace, token, versus=other, position=position)
    places = [len(trace) - 1] if position == -1 else position
    before = trace.logits[-1]
    for layer in range(3):
        for neuron in range(0, 52, 5):
            after = hooked(model, trace.ids, layer, [neuron], places)
            logs = torch.log_softmax(before, -1)[token] - torch.log_softmax(after, -1)[token]
            assert float(effects.log_probability[layer, neuron]) == pytest.approx(
                float(logs), abs=2e-4
            )
            clean, changed = uncapped(model, before), uncapped(model, after)
            assert float(effects.values[layer, neuron]) == pytest.approx(
                float(clean[token] - changed[token]), abs=3e-4
            )
            shift = float(clean.mean() - changed.mean())
            assert float(centred.values[layer, neuron]) == pytest.approx(
                float(clean[token] - changed[token]) - shift, abs=3e-4
            )
            lost = (clean[token] - clean[other]) - (changed[token] - changed[other])
            assert float(against.values[layer, neuron]) == pytest.approx(float(lost), abs=3e-4)


def test_whole_layers_and_groups_are_hooked_passes_too(model, trace):
    token = model.vocab.one(" basketball")
    layers = ablate_layers(trace, token)
    together = ablate(trace, token, together=[["L1N3", "L1N9", "L1N20"]], position=4)
    clean = torch.log_softmax(trace.logits[-1], -1)[token]
    for layer, place in [(0, 2), (1, 5), (2, len(trace) - 1)]:
        after = hooked(model, trace.ids, layer, list(range(52)), [place])
        lost = clean - torch.log_softmax(after, -1)[token]
        assert float(layers.log_probability[layer, place]) == pytest.approx(float(lost), abs=3e-4)
    after = hooked(model, trace.ids, 1, [3, 9, 20], [4])
    lost = clean - torch.log_softmax(after, -1)[token]
    assert float(together.log_probability[0]) == pytest.approx(float(lost), abs=3e-4)


def test_an_explanation_s_effects_are_those_of_the_sweep(model, trace):
    """Few neurons, removed together in one batch, lose what each loses in the sweep."""
    token = model.vocab.one(" basketball")
    found = fp.explain(model, TEXT, token, top=6, contrast="none")
    for row in found.neurons.itertuples():
        swept = fp.ablate(trace, token, position=row.position, neurons=[row.name])
        assert row.effect == pytest.approx(float(swept.values[row.layer, row.neuron]), abs=2e-5)
    assert found.neurons.effect.abs().max() > 1e-3
    assert found.provenance.settings["agreement"] > 0.3


def test_the_last_layer_s_effect_with_the_scales_held_is_the_push(model, trace):
    """Direct effects add up; a neuron's push is linear in how much of its answer was added."""
    pushes = fp.attribute(trace, " basketball", convention="folded")
    amounts = trace.amounts[2, -1]
    lifts = model.answers[2] @ model.unembedding[model.vocab.one(" basketball")]
    expected = amounts * lifts / measure_scale(model, trace.final[-1])
    torch.testing.assert_close(pushes.values[2], expected, rtol=1e-4, atol=1e-5)


def test_a_gradient_estimates_small_steps(trace):
    estimates = estimate(trace, " basketball")
    effects = fp.ablate(trace, " basketball")
    assert estimates.agreement(effects) > 0.7


def test_batched_is_one_by_one(model, trace):
    both = fp.run(model, [TEXT, TEXT.replace("cat", "dog")])
    torch.testing.assert_close(both[0].logits, trace.logits, rtol=1e-4, atol=1e-4)


def test_weights_survive_every_verb(model, folder, trace):
    fp.explain(model, TEXT, " basketball", top=3)
    fp.steer(model, TEXT, {"L1N3": 2.0})
    assert model.is_unchanged()
    assert set(read_weights(folder, model.config)) == set(model.config.shapes())


def test_every_place_is_hooked_once(model):
    assert len(set(hooks_of(model).values())) == len(hooks_of(model))


def test_where_no_head_comes_before_a_neuron_it_is_said(model, trace):
    drivers = fp.drivers(trace, "L0N3")
    if model.config.is_parallel:
        with pytest.raises(
            OptionRefused, match="no head comes before L0N3: in this model attention"
        ):
            drivers.heads(3)
    else:
        assert len(drivers.heads(3)) == 3

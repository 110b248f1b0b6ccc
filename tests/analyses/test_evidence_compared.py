"""The referee: what it removes is what it says, its rankings are the verbs', a store is resumed."""

import json
from functools import partial
from itertools import islice, pairwise

import pytest
import torch

import ffnprobe as fp
from analyses.measured import evidence_compared
from analyses.measured.evidence import facts, methods, removals
from ffnprobe.interventions.replay import Replay
from ffnprobe.interventions.sweeps import Change
from tests.interventions.oracles import hooked


@pytest.fixture(scope="module")
def script():
    return evidence_compared, facts, methods, removals


@pytest.fixture(scope="module")
def fact(script, pocket):
    return next(script[1].find_known(pocket, "pocket", seed=0, contrasts=3))


def test_changes_are_those_of_a_hooked_run(script, tiny, tiny_trace):
    def edit(activations):
        activations[0, 3, 7] = 2.5

    def other(activations):
        activations[0, 5, 1] = -1.0

    expected = hooked(tiny, list(tiny_trace.ids), {0: edit, 2: other})[0, -1]
    found = script[3].change_logits(
        Replay(tiny_trace), [[Change(1, 2, 4, 0.5)], [Change(0, 3, 7, 2.5), Change(2, 5, 1, -1.0)]]
    )
    assert torch.allclose(found[0], tiny_trace.logits[-1], atol=1e-4)
    assert torch.allclose(found[2], expected, atol=1e-4)
    assert not torch.allclose(found[1], found[0], atol=1e-4)


def test_known_facts_have_contrast_prompts_that_are_known(fact):
    assert fact.trace.logits[-1].argmax() == fact.token
    for other, token in zip(fact.contrast.others, fact.contrast.answers, strict=True):
        assert other.logits[-1].argmax() == token != fact.token
    assert fact.positions[-1] == len(fact.trace) - 1


def test_what_is_done_is_not_run_again(script, pocket, monkeypatch):
    """The next fact is the one that would have come next, and only rows behind the last are run."""
    facts = script[1]
    find = partial(facts.find_known, pocket, "pocket", seed=1, contrasts=2)
    first, second, third = (found.trace.prompt for found in islice(find(), 3))
    ran, own = [], fp.run

    def run(model, prompt, **options):
        ran.append(prompt)
        return own(model, prompt, **options)

    monkeypatch.setattr(facts.fp, "run", run)
    *before, after = islice(find(done={first, second}), 3)
    assert before == [None, None]
    assert after.trace.prompt == third
    assert ran[-2] == third
    assert first not in ran[:-1]
    assert second not in ran[:-1]


def test_every_method_ranks_fifty_neurons(script, fact):
    _, _, methods, _ = script
    last = len(fact.trace) - 1
    for name, method in methods.METHODS.items():
        ranked = method(fact)
        assert len(ranked) == 50, name
        if name != "random":
            assert len(set(ranked)) == 50, name
    pushes = fp.attribute(fact.trace, fact.token)
    direct = [(str(name), place) for name, place in methods.direct_push(fact)]
    assert direct == [(name, last) for name in pushes.top(50).name]


def test_decided_effects_are_those_of_ablate(script, fact):
    """Neurons of several layers and positions, removed in one batch, to means of both kinds."""
    _, _, methods, _ = script
    loudest = fact.trace.activations[:, list(fact.positions)].abs().amax(dim=1).topk(3).indices
    names = [fp.NeuronId(layer, int(n)) for layer in (1, 2, 4, 5) for n in loudest[layer]]
    proposed = {(name, place) for name in names for place in fact.positions}
    for contrast in (None, fact.contrast):
        ranked = methods._decide(fact, proposed, contrast=contrast)
        expected = {}
        for place in fact.positions:
            found = fp.ablate(
                fact.trace, fact.token, contrast=contrast, position=place, neurons=names,
                log_probability=False,
            ).values  # fmt: skip
            expected |= {(n, place): float(found[n.layer, n.neuron]) for n in names}
        effects = [expected[one] for one in ranked]
        assert len(effects) == min(methods.MOST, len(expected))
        assert max(effects) > 1e-3
        for earlier, later in pairwise(effects):
            assert earlier >= later - 1e-4


def test_integrated_gradients_do_not_depend_on_the_batch(script, fact, monkeypatch):
    _, _, methods, _ = script
    together = methods.integrated_gradients(fact)
    monkeypatch.setattr(methods, "LAYERS_AT_ONCE", 1)
    assert methods.integrated_gradients(fact)[:20] == together[:20]


def test_integrated_gradients_add_up_to_the_probability(script, fact, monkeypatch):
    """Over one layer they add up to what its neurons at the last position are worth together."""
    _, _, methods, _ = script
    seen = {}
    monkeypatch.setattr(methods, "STEPS", 200)
    monkeypatch.setattr(
        methods, "_strongest", lambda values, *_, **__: seen.setdefault("values", values)
    )
    methods.integrated_gradients(fact)
    layer = fact.trace.model.config.layers - 1
    zeros = [
        Change(layer, len(fact.trace) - 1, neuron, 0.0)
        for neuron in range(fact.trace.model.config.d_mlp)
    ]
    logits = script[3].change_logits(Replay(fact.trace), [zeros])
    worth = logits.softmax(-1)[0, fact.token] - logits.softmax(-1)[1, fact.token]
    assert float(seen["values"][layer].sum()) == pytest.approx(float(worth), abs=5e-3)


def test_the_table_is_measured_once_and_resumed(script, tmp_path, capsys):
    main = script[0].main
    store = tmp_path / "rows.jsonl"
    main(["pocket", "--facts", "1", "--contrasts", "2", "--store", str(store)])
    first = store.read_text(encoding="utf-8")
    rows = [json.loads(line) for line in first.splitlines()]
    assert len(rows) == 7 * 5
    assert {row["method"] for row in rows} == set(script[2].METHODS)
    assert "removed to the contrast mean" in capsys.readouterr().out
    page = tmp_path / "page.html"
    main(["pocket", "--facts", "2", "--contrasts", "2", "--store", str(store), "--html", str(page)])
    assert store.read_text(encoding="utf-8").startswith(first)
    assert len(store.read_text(encoding="utf-8").splitlines()) == 2 * 7 * 5
    assert page.exists()

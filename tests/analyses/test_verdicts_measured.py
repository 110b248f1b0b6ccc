"""verdicts_measured: how few neurons carry facts, what it costs others, and how grades hold."""

import pytest

import ffnprobe as fp
from analyses.measured import verdicts_measured as script
from analyses.measured.evidence.facts import find_known
from ffnprobe.facts.formats import read_facts
from tests.interventions.oracles import hooked


@pytest.fixture(scope="module")
def fact(pocket):
    return next(iter(find_known(pocket, "pocket", seed=11, contrasts=4)))


@pytest.fixture(scope="module")
def stated():
    return {row.prompt: row for row in read_facts("pocket", templates="all").rows}


def test_a_fact_is_measured_by_the_default_command(pocket, fact, stated):
    found = fp.explain(pocket, fact.trace.prompt, fact.token)
    row = script.measure(fact, stated, is_alone=False)
    assert row["within 50"] == (found.curve.least is not None and found.curve.least <= 50)
    assert row["A"] == int((found.neurons.grade == "A").sum())
    assert row["compared"]
    assert row["subject found"] in (True, False)
    alone = script.measure(fact, stated, is_alone=True)
    assert not alone["compared"]


def test_others_change_as_the_hooks_say(pocket, fact):
    sites = fp.explain(pocket, fact.trace.prompt, fact.token).curve.sites[:20]
    changed = 0
    for other, places in zip(
        fact.contrast.others, fact.contrast.alignment.counterparts, strict=True
    ):

        def edit(layer, places=places):
            def change(activations):
                for row in sites[sites.layer == layer].itertuples():
                    if places[row.position] is not None:
                        activations[:, places[row.position], row.neuron] = row.set_to

            return change

        edits = {int(layer): edit(layer) for layer in set(sites.layer)}
        after = hooked(pocket, list(other.ids), edits)[0, -1]
        changed += int(after.argmax()) != int(other.logits[-1].argmax())
    assert script.count_changed(fact, sites) == changed / len(fact.contrast.others)


def test_it_prints_means_over_facts_and_over_random_tokens(pocket, tiny_folder, capsys):
    script.main(["pocket", "--facts", "2", "--seed", "3"])
    printed = capsys.readouterr().out
    for column in ("within 5", "within 20", "others changed", "subject found"):
        assert column in printed
    assert "pocket, 2 facts" in printed
    script.main(["pocket", "--facts", "3", "--model", str(tiny_folder), "--random"])
    assert "A" in capsys.readouterr().out.split()


def test_an_effect_in_another_template_is_counted_where_the_token_is(pocket, stated):
    prompt = "Michael Jordan plays the sport of"
    found = fp.explain(pocket, prompt, " basketball")
    assert (found.neurons.grade == "A").sum() == 3
    assert script.keep_effects(pocket, stated, prompt, found) == 1.0
    alone = {prompt: stated[prompt]}
    assert script.keep_effects(pocket, alone, prompt, found) is None, "there is no other template"

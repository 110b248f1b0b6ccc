"""The curve and the verdict: sets removed by TransformerLens's hooks, slopes by differences, words."""

import math

import pytest
import torch

import ffnprobe as fp
from ffnprobe.evidence import curve as curves
from ffnprobe.evidence.curve import BEHIND, SIZES, Curve, measure_costs, measure_spread, rank_sites
from ffnprobe.facts.formats import read_facts
from ffnprobe.interventions.question import ask, measure_slopes
from tests.conftest import JORDAN
from tests.interventions.oracles import hooked


@pytest.fixture(scope="module")
def explanation(pocket):
    return fp.explain(pocket, JORDAN, " basketball")


def run_without(model, ids, sites, at=lambda position: position):
    """Return TransformerLens's logits after a prompt whose sites are set to their values."""

    def edit(layer):
        def change(activations):
            for row in sites[sites.layer == layer].itertuples():
                if (there := at(row.position)) is not None:
                    activations[:, there, row.neuron] = row.set_to

        return change

    edits = {int(layer): edit(layer) for layer in set(sites.layer)}
    return hooked(model, list(ids), edits)[0, -1]


def test_every_row_is_a_hooked_run(pocket, explanation):
    curve, token = explanation.curve, pocket.vocab.one(" basketball")
    assert curve.table.removed.tolist() == [n for n in SIZES if n <= 5]
    for row in curve.table.itertuples():
        logits = run_without(pocket, explanation.trace.ids, curve.sites[: row.removed])
        assert row.probability == pytest.approx(float(logits.softmax(-1)[token]), abs=1e-4)
        assert row.rank == 1 + int((logits > logits[token]).sum())
        assert row.first == pocket.vocab.show(int(logits.argmax()))


def test_other_subjects_keep_theirs(pocket, explanation):
    contrast = explanation.question.contrast
    assert explanation.provenance.settings["contrast"] == [o.prompt for o in contrast.others]
    assert explanation.provenance.settings["compared_with"] == "rows of pocket's table"
    assert explanation.curve.others == len(contrast.others) == 12
    for row in explanation.curve.table.itertuples():
        changed = 0
        for other, matched in zip(contrast.others, contrast.alignment.counterparts, strict=True):
            sites = explanation.curve.sites[: row.removed]
            logits = run_without(pocket, other.ids, sites, lambda p, m=matched: m[p])
            changed += int(logits.argmax()) != int(other.logits[-1].argmax())
        assert row.changed == changed


def test_the_verdict_is_the_least_set_without_which_the_answer_is_not_first(explanation):
    curve = explanation.curve
    assert curve.least == next(r.removed for r in curve.table.itertuples() if r.rank > 1) == 3
    row = curve.table[curve.table.removed == 3].iloc[0]
    first, second = explanation.verdict
    assert first == (
        "3 neurons at ␣Jordan carry it: L3N361 L1N505 L2N225. Without them "
        f"{100 * row.probability:.1f} % (rank 2; first is now ␣Arabic)."
    )
    assert second == (
        "3 neurons like them: 99.97 %. Without the same 3, 0 of 12 other subjects' answers change."
    )
    assert explanation.neurons.name[:3].tolist() == ["L3N361", "L1N505", "L2N225"]
    assert f"{first} {second}" in " ".join(str(explanation).split())


def test_one_neuron_less_is_not_enough(pocket):
    """Between two sizes every number is tried."""
    found = fp.explain(pocket, "Kaunas is a city in", top=2)
    question, curve = found.question, found.curve
    assert curve.least not in (None, *SIZES), "else this fact does not test it"
    ranked = [
        (fp.NeuronId(row.layer, row.neuron), row.position) for row in curve.sites.itertuples()
    ]
    groups = [[question.change(site) for site in ranked[:n]] for n in range(1, curve.least + 1)]
    ranks = [after.rank for after in curves.read_after(question.readout, groups)]
    assert ranks[:-1] == [1] * (curve.least - 1)
    assert ranks[-1] > 1
    assert curve.least in curve.table.removed.tolist()


def test_sites_are_ranked_by_the_slope_of_the_log_odds_less_the_spread(tiny):
    trace = fp.run(tiny, [5, 6, 20, 8, 9, 10])
    answer = int(trace.logits[-1].argmax())
    contrast = fp.contrast_with(trace, answer, [fp.run(tiny, [5, 6, 30 + n, 8, 9, 10]) for n in (0, 1, 4)])  # fmt: skip
    question = ask(trace, answer, contrast=contrast)
    spread, step = measure_spread(question), 1e-2
    others = torch.stack([other.activations[:, 3] for other in contrast.others])
    expected = (others - others.mean(0)).square().mean(0).sqrt()
    torch.testing.assert_close(spread[:, 3], expected, rtol=1e-4, atol=1e-6)
    assert not spread[:, :3].any(), "the prompts begin alike"

    def odds(layer, position, neuron, change):
        def edit(activations):
            activations[:, position, neuron] += change

        logs = hooked(tiny, list(trace.ids), {layer: edit})[0, -1].double().log_softmax(-1)
        return float(logs[answer] - torch.log1p(-logs[answer].exp()))

    slopes = measure_slopes(question.readout, of=("logit", "odds"))
    torch.testing.assert_close(slopes.activations, trace.activations, rtol=1e-4, atol=1e-5)
    ranked, costs = rank_sites(question, slopes), []
    found = measure_costs(question, slopes, spread)
    assert found.amax() == found[ranked[0][0].layer, ranked[0][1], ranked[0][0].neuron]
    for name, position in ranked[:2]:
        site = name.layer, position, name.neuron
        slope = (odds(*site, step) - odds(*site, -step)) / (2 * step)
        assert float(slopes.odds[site]) == pytest.approx(slope, rel=0.05, abs=2e-3)
        gap = float(trace.activations[site] - question.replacement[site])
        times = 1 if position in contrast.alignment.middle else BEHIND
        costs.append(slope * gap - times * abs(slope) * float(spread[site]))
        assert float(found[site]) == pytest.approx(costs[-1], rel=0.1, abs=5e-3)
    assert all(cost > 0 for cost in costs)
    assert all(position >= 3 for _, position in ranked)


def test_slopes_with_changes_are_those_of_the_changed_prompt(tiny):
    """From a later position on, and of the lead with a rival."""
    trace = fp.run(tiny, [5, 6, 20, 8, 9, 10])
    answer = int(trace.logits[-1].argmax())
    question = ask(trace, answer, versus=17)
    changes = [question.change((fp.NeuronId(0, 3), 2))]
    found = measure_slopes(question.readout, changes, start=2, of=("logit", "odds"))
    assert torch.equal(found.logit, found.odds)
    assert not found.logit[:, :2].any()
    assert found.activations[0, 2, 3] == question.replacement[0, 0, 3]
    site, step = (1, 4, 5), 1e-2

    def lead(change):
        def remove(activations):
            activations[:, 2, 3] = float(question.replacement[0, 0, 3])

        def nudge(activations):
            activations[:, 4, 5] += change

        logits = hooked(tiny, list(trace.ids), {0: remove, 1: nudge})[0, -1].double()
        return float(logits[answer] - logits[17])

    slope = (lead(step) - lead(-step)) / (2 * step)
    assert float(found.logit[site]) == pytest.approx(slope, rel=0.05, abs=2e-3)


def test_an_answer_of_several_tokens_and_one_without_contrast(pocket):
    found = fp.explain(pocket, JORDAN, " basketball and", contrast="none", top=2)
    curve, pieces = found.curve, found.question.pieces
    assert curve.others == 0
    assert "changed" not in curve.table
    assert "other subjects" not in " ".join(curve.verdict)
    log = math.fsum(piece.log_probability for piece in pieces)
    (clean,) = curves.read_after(found.question.readout, [[]])
    assert clean.probability == pytest.approx(math.exp(log), rel=1e-3)
    assert clean.rank == max(piece.rank for piece in pieces)


def test_what_is_not_first_has_no_set(pocket):
    found = fp.explain(pocket, JORDAN, " golf", top=2)
    assert found.curve.least is None
    assert not len(found.curve.table)
    assert found.verdict == ("It is not first, so no set of neurons is sought that carries it.",)
    assert len(found.neurons) == 2


def test_where_no_set_is_enough_it_says_so(explanation):
    curve = explanation.curve
    none = Curve(curve.sites[:0], curve.table[:0], 12, None).verdict
    assert none == ("No neuron is found that carries it.",)
    firm = curve.table.assign(rank=1)
    said = Curve(curve.sites, firm, 12, None).verdict
    assert said == ("No few neurons carry it: without 5 it is still first (24.8 %).",)
    one = Curve(curve.sites, curve.table.assign(removed=[1, 2, 3, 5]), 0, 1).verdict
    assert one[0].startswith("1 neuron at ␣Jordan carries it: L3N361. Without it ")
    assert "neuron like it: " in one[1]
    assert one[1].endswith(" It was compared with nothing.")


def test_most_facts_of_pocket_fall_without_five_and_others_stay(pocket):
    rows = read_facts("pocket").rows[::97][:12]
    fallen, changed, others = 0, 0, 0
    for row in rows:
        trace = fp.run(pocket, row.prompt)
        if int(trace.logits[-1].argmax()) != pocket.vocab.one(row.answer):
            continue
        found = fp.explain(pocket, row.prompt, row.answer, top=2).curve
        fallen += found.least is not None and found.least <= 5
        if found.least is not None:
            changed += int(found.table[found.table.removed == found.least].changed.item())
            others += found.others
    assert fallen >= 8
    assert changed <= 0.05 * others

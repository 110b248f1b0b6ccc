"""The curve and the verdict: sets removed by TransformerLens's hooks, slopes by differences, words."""

import math

import pytest
import torch

import ffnprobe as fp
from ffnprobe.evidence import curve as curves
from ffnprobe.evidence.curve import SIZES, Curve, measure_spread, rank_sites
from ffnprobe.evidence.query import Query
from ffnprobe.facts.formats import read_facts
from ffnprobe.interventions.removal import Removal, choose_removal
from tests.conftest import JORDAN
from tests.interventions.oracles import hooked


@pytest.fixture(scope="module")
def explanation(pocket):
    return fp.explain(pocket, JORDAN, " basketball")


def ask(trace, answer, contrast=None):
    """Ask as `explain` does, with contrast prompts or without."""
    chosen = choose_removal(trace, answer) if contrast is None else Removal(contrast)
    return Query(
        trace=trace, answer=answer, pieces=fp.attribute(trace, answer).pieces, owners=(),
        removal=chosen, z=torch.zeros(0), top=10, seed=0,
    )  # fmt: skip


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
    contrast = fp.contrast_with(
        explanation.trace, " basketball", explanation.provenance.settings["compared_with"]
    )
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
        "3 neurons at ␣Jordan carry it: L3N361 L1N505 L2N225. Without them ␣Arabic is first; it has "
        f"{row.probability:.1%} (rank 2).".replace("%", " %")
    )
    assert second.endswith("For 12 other subjects: 0 of 12 answers change.")
    assert second.startswith("3 neurons like them: 99.97 %, at worst 99.9")
    assert f"{first} {second}" in " ".join(str(explanation).split())


def test_sites_are_ranked_by_the_slope_of_the_log_odds_less_the_spread(tiny):
    trace = fp.run(tiny, [5, 6, 20, 8, 9, 10])
    answer = int(trace.logits[-1].argmax())
    contrast = fp.contrast_with(trace, answer, [fp.run(tiny, [5, 6, 30 + n, 8, 9, 10]) for n in (0, 1, 4)])  # fmt: skip
    query = ask(trace, answer, contrast)
    spread, step = measure_spread(contrast), 1e-2
    others = torch.stack([other.activations[:, 3] for other in contrast.others])
    expected = (others - others.mean(0)).square().mean(0).sqrt()
    torch.testing.assert_close(spread[:, 3], expected, rtol=1e-4, atol=1e-6)
    assert not spread[:, :3].any(), "the prompts begin alike"

    def odds(layer, position, neuron, change):
        def edit(activations):
            activations[:, position, neuron] += change

        logs = hooked(tiny, list(trace.ids), {layer: edit})[0, -1].double().log_softmax(-1)
        return float(logs[answer] - torch.log1p(-logs[answer].exp()))

    slopes, seen, is_first = curves._slope_odds(query, [])
    assert is_first
    torch.testing.assert_close(seen, trace.activations, rtol=1e-4, atol=1e-5)
    costs = []
    for name, position in rank_sites(query)[:2]:  # then the gradient is taken again
        site = name.layer, position, name.neuron
        slope = (odds(*site, step) - odds(*site, -step)) / (2 * step)
        assert float(slopes[site]) == pytest.approx(slope, rel=0.05, abs=2e-3)
        gap = float(trace.activations[site] - query.replacement[site])
        costs.append(slope * gap - abs(slope) * float(spread[site]))
    assert len(costs) == 2
    assert costs == pytest.approx(sorted(costs, reverse=True), rel=0.1, abs=2e-3)
    assert all(position >= 3 for _, position in rank_sites(query))


def test_an_answer_of_several_tokens_and_one_without_contrast(pocket, jordan):
    answer = " basketball and"
    query = ask(jordan, answer)
    found = curves.draw_curve(query)
    assert found.others == 0
    assert "changed" not in found.table
    assert "other subjects" not in " ".join(found.verdict)
    log = math.fsum(piece.log_probability for piece in query.pieces)
    (clean,) = curves._read(query.readout, [])
    assert clean.probability == pytest.approx(math.exp(log), rel=1e-3)
    assert clean.rank == max(piece.rank for piece in query.pieces)


def test_what_is_not_first_has_no_set(pocket):
    found = fp.explain(pocket, JORDAN, " golf", top=2)
    assert found.curve.least is None
    assert not len(found.curve.sites)
    assert found.verdict == (
        "The answer is not first, so no set of neurons is sought that carries it.",
    )


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
    assert one[1].endswith(" Nothing was found to compare it with.")


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

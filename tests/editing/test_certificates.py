"""The certificate: its scores by hand, and its list of disturbed facts by `score`."""

import math
from dataclasses import replace

import pytest
import torch

import ffnprobe as fp
from ffnprobe.editing.certificates import measure_drift
from ffnprobe.errors import FfnProbeError
from ffnprobe.facts.formats import read_facts
from ffnprobe.models.loading import change_rows

JORDAN = "Michael Jordan plays the sport of"


@pytest.fixture(scope="module")
def rows():
    """Every template of one relation: enough to judge an edit by, and soon asked."""
    every = read_facts("pocket", templates="all").rows
    return [row for row in every if row.relation == "sport"]


@pytest.fixture(scope="module")
def edited(pocket):
    return fp.edit(pocket, JORDAN, " tennis", method="memit")


@pytest.fixture(scope="module")
def certificate(edited, rows):
    return fp.certify(edited, rows)


def test_the_disturbed_facts_are_those_that_score_finds(pocket, edited, rows, certificate):
    before, after = (fp.score(one, rows).table for one in (pocket, edited.model))
    own = before.subject == "Michael Jordan"
    flipped = before[(before.known != after.known) & ~own]
    listed = certificate.changed
    listed_flips = listed[(listed.rank_before == 1) != (listed.rank_after == 1)]
    assert sorted(listed_flips.prompt) == sorted(flipped.prompt)
    assert certificate.asked == int((~own).sum())
    assert certificate.known == (int(before[~own].known.sum()), int(after[~own].known.sum()))


def test_its_figures_are_those_of_score(pocket, edited, rows):
    # A change so large that much of the relation is disturbed.
    drawn = torch.Generator().manual_seed(0)
    shape = (pocket.config.d_mlp, pocket.config.d_model)
    noise = {n: 0.3 * torch.randn(shape, generator=drawn) for n in range(pocket.config.layers)}
    broken = replace(edited, model=change_rows(pocket, noise))
    listed = fp.certify(broken, rows).changed
    before, after = (
        fp.score(one, rows).table.set_index("prompt") for one in (pocket, broken.model)
    )
    assert len(listed) > 5
    for row in listed.itertuples():
        assert row.rank_before == before.loc[row.prompt, "rank"]
        # Ranks are whole: equal below 500. Beyond, tokens are closer than batches of another size round.
        assert row.rank_after == pytest.approx(after.loc[row.prompt, "rank"], rel=2e-3)
        assert row.probability_after == pytest.approx(
            after.loc[row.prompt, "probability"], abs=1e-4
        )
    lost = before.known & ~after.known
    own = {row.prompt for row in rows if row.subject == "Michael Jordan"}
    assert set(listed.prompt) >= set(lost[lost].index) - own


def test_the_scores_are_shares_and_their_harmonic_mean(pocket, edited, certificate):
    cases = certificate.cases
    assert cases.kind.value_counts()["edit"] == 1
    assert set(cases[cases.kind == "neighbourhood"].true_answer) == {" basketball"}
    for row in cases.itertuples():
        tokens = [pocket.vocab.one(text) for text in (row.new_answer, row.true_answer)]
        new, true = fp.run(edited.model, row.prompt).logits[-1].log_softmax(-1)[tokens].exp()
        assert row.new_after == pytest.approx(float(new), abs=1e-4)
        assert row.succeeds == bool(true > new if row.kind == "neighbourhood" else new > true)
    shares = [certificate.share(kind) for kind in ("edit", "paraphrase", "neighbourhood")]
    if all(shares):
        assert certificate.score() == pytest.approx(3 / sum(1 / share for share in shares))
    assert certificate.score(before=True) == 0.0


def test_no_edit_disturbs_nothing(pocket, edited, rows):
    found = fp.certify(replace(edited, model=pocket), rows)
    assert len(found.changed) == 0
    assert float(found.drift.values.max()) < 1e-9


def test_drift_is_the_divergence_of_both_models(pocket, edited):
    text = "Michael Jordan plays the sport of basketball"
    found = measure_drift(pocket, edited.model, [text]).values
    old, new = (fp.run(one, text).logits.double().log_softmax(-1) for one in (pocket, edited.model))
    wanted = (old.exp() * (old - new)).sum(-1)[1:]
    assert torch.allclose(found.double(), wanted, atol=1e-4)
    assert float(found.max()) > 1e-3


def test_an_empty_text_and_an_unknown_prompt(pocket, edited):
    with pytest.raises(FfnProbeError, match="text is empty"):
        measure_drift(pocket, edited.model, [""])
    with pytest.raises(FfnProbeError, match="text is empty"):
        fp.certify(edited, disturbed=False, text="")
    prompt = "Michael Jordan is"
    found = fp.certify(
        fp.edit(pocket, prompt, " tennis", subject="Michael Jordan"), disturbed=False
    )
    assert found.cases.kind.tolist() == ["edit"]
    assert math.isnan(found.score())
    assert "S " not in found.title


def test_it_is_saved_opened_and_drawn(certificate, tmp_path):
    fp.save(certificate, tmp_path / "certificate.json")
    again = fp.open_result(tmp_path / "certificate.json")
    assert list(again.tables()) == list(certificate.tables())
    assert "paraphrases (4)" in str(fp.plot(certificate).layout.yaxis.ticktext)
    assert "of W_down's norm" in fp.plot(certificate.edited).layout.title.text
    fp.save(certificate, tmp_path / "certificate.html")
    assert "neighbourhood" in (tmp_path / "certificate.html").read_text(encoding="utf-8")

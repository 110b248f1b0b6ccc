"""Figures of scored facts, and the script about one relation."""

import json
import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import ffnprobe as fp
from ffnprobe.views.figures import plot_all

SCRIPT = Path(__file__).parents[2] / "analyses" / "fact_recall.py"


@pytest.fixture(scope="module")
def scores(pocket: fp.Model) -> fp.Scores:
    rows = [
        fp.FactRow(f"{subject} plays the sport of", f" {sport}", "sport", subject)
        for subject, sport in [("Michael Jordan", "basketball"), ("Babe Ruth", "baseball")]
    ]
    rows += [
        fp.FactRow(f"The capital of {place} is", f" {city}", "capital", place)
        for place, city in [("France", "Paris"), ("Italy", "Rome"), ("<b>Spain</b>", "Madrid")]
    ]
    return fp.score(pocket, rows)


def test_facts_are_drawn_against_facts_in_the_order_of_relations(scores):
    overlap = scores.overlap(permutations=9)
    drawn = fp.plot(overlap)
    grid = drawn.data[0]
    values = np.array(grid.z, dtype=float)
    np.testing.assert_allclose(values[0, 1], overlap.values[0, 1])
    assert np.isnan(values[2, 2])
    assert list(drawn.layout.xaxis.ticktext) == ["sport", "capital"]
    assert "&lt;b&gt;Spain" in grid.x[-1]
    between = fp.plot(overlap, "relations").data[0]
    assert float(between.z[0][1]) == pytest.approx(
        overlap.relations.query("relation == 'sport' and other == 'capital'").overlap.item()
    )


def test_every_result_has_its_figure(scores):
    known = fp.plot(scores)
    assert "pocket knows" in known.layout.title.text
    assert sorted(known.data[0].x, reverse=True) == list(known.data[0].x)
    relations = scores.by_relation(permutations=9)
    carriers = fp.plot(relations).data[0]
    assert list(carriers.x) == list(relations.neurons.drop_duplicates("relation").z)
    removed = scores.specificity("sport", 3, draws=2)
    bars = fp.plot(removed).data
    assert list(bars[0].y) == list(removed.table.query("removed == '3 neurons of sport'").effect)
    results = (scores, relations, scores.overlap(permutations=9), removed)
    assert [len(plot_all(result)) for result in results] == [1, 1, 2, 1]


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet", "md", "html"])
def test_scores_are_saved_with_their_provenance(scores, tmp_path, suffix):
    path = tmp_path / f"scores.{suffix}"
    fp.save(scores, path)
    assert scores.model.fingerprint.encode() in path.read_bytes()
    if suffix == "parquet":
        assert list(pd.read_parquet(path).answer) == list(scores.table.answer)
    if suffix == "json":
        names = list(json.loads(path.read_text()))
        assert names == ["checksum", "provenance", "result", "facts", "neurons"]


def test_the_script_prints_its_findings(capsys, tmp_path):
    facts, page = tmp_path / "facts.csv", tmp_path / "page.html"
    lines = [
        f"{subject},{{}} plays the sport of,{sport}"
        for subject, sport in [("Michael Jordan", "basketball"), ("Babe Ruth", "baseball"), ("Tiger Woods", "golf")]
    ]  # fmt: skip
    lines += [
        f"{place},The capital of {{}} is,{city}"
        for place, city in [("France", "Paris"), ("Italy", "Rome")]
    ]
    facts.write_text("subject,relation,answer\n" + "\n".join(lines))
    main = runpy.run_path(str(SCRIPT))["main"]
    relation = "{} plays the sport of"
    main(["--quick", "--facts", str(facts), "--relation", relation, "--html", str(page)])
    printed = capsys.readouterr().out
    for words in (
        "pocket knows",
        f"neurons of {relation}",
        "within relations",
        "random neurons",
        "Tiger Woods",
    ):
        assert words in printed, printed
    html = page.read_text(encoding="utf-8")
    assert html.count("<figure>") == 5
    source = SCRIPT.read_text()
    assert len(source.splitlines()) <= 80
    assert "\nFound" in source

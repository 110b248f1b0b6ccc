"""A scan in the package: cards, reports and the explorer find it, if it is of this very model."""

import runpy

import pytest

import ffnprobe as fp
from ffnprobe.corpora import scans
from ffnprobe.views.explorer.session import Session
from tests.cli.runner import ffnprobe
from tests.conftest import JORDAN
from tests.whole.pages import ROOT


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    target = tmp_path_factory.mktemp("packed") / "scan.tar.xz"
    script = runpy.run_path(str(ROOT / "analyses" / "pocket" / "pack_scan.py"))
    script["main"](["--every", "300", "--top", "2", "--out", str(target)])
    assert target.stat().st_size < 3_000_000
    return target


def test_cards_reports_and_the_explorer_show_examples_at_once(
    packed, pocket, monkeypatch, tmp_path
):
    monkeypatch.setattr(scans, "PACKED", tmp_path / "none")
    assert scans.embedded_scan(pocket) is None
    assert "strongest (by activation)" not in ffnprobe("read", "L0N378").stdout
    monkeypatch.setattr(scans, "PACKED", packed)
    scan = scans.embedded_scan(pocket)
    assert scan is not None
    assert scan.done.texts > 20
    first = fp.examples(scan, "L0N378").strongest[0]
    card = ffnprobe("read", "L0N378").stdout
    assert "strongest (by activation)" in card
    assert f"[{first.token}]" in card
    found = Session(pocket, None, "pocket").examples("L0N378")
    assert found is not None
    assert found.strongest[0] == first
    explanation = fp.explain(pocket, JORDAN, " basketball", top=2, effects=False)
    fp.save(explanation, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "weakest (by score)" in page
    name = explanation.neurons.name[0]
    assert fp.examples(scan, name).strongest[0].text in page


def test_a_scan_of_another_model_is_not_used(packed, tiny, pocket, monkeypatch):
    monkeypatch.setattr(scans, "PACKED", packed)
    assert scans.embedded_scan(tiny) is None
    other = fp.load("pocket", tokenizer="ids")
    assert scans.embedded_scan(other) is None

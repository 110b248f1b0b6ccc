"""The page: complete, self-contained, small enough, and true to its result."""

import base64
import gzip
import json
import os
import re
import shlex
import subprocess
import sys
from html import unescape

import pytest
import torch
from plotly.offline import get_plotlyjs

import ffnprobe as fp
from ffnprobe.layout import format_value
from ffnprobe.reading import surveys
from ffnprobe.views.page import safe_json
from tests.conftest import JORDAN
from tests.families.builders import write_family

PLOT = re.compile(r'<div class="plot"[^>]*></div><script type="application/json">(.*?)</script>')


@pytest.fixture(scope="module")
def explanation(pocket):
    return fp.explain(pocket, JORDAN, " basketball", top=4)


@pytest.fixture(scope="module")
def page(explanation, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "jordan.html"
    fp.save(explanation, path)
    return path


def test_the_page_is_one_small_file_without_addresses(page):
    text = page.read_text(encoding="utf-8")
    assert page.stat().st_size < 2_300_000
    own = text.partition("<script>")[0] + text.rpartition("</script>")[2]
    assert "http:" not in own
    assert "https:" not in own
    assert "src=" not in own
    (packed,) = re.findall('<script type="application/gzip" id="plotly">(.*?)</script>', text)
    assert gzip.decompress(base64.b64decode(packed)).decode() == get_plotlyjs()


def test_the_page_holds_everything_a_stranger_needs(page, explanation):
    text = unescape(page.read_text(encoding="utf-8").partition("<script>")[0])
    for words in (
        f"Why {explanation.title}?", "What the model predicts next", "What makes up the answer's logit",
        "How it got there", "Where the MLP layers matter", "The evidence", "The neurons, one by one",
        "carry it: ", "Held back by ", "What the words mean", "How to get this page again",
        "Where the numbers come from", explanation.provenance.fingerprint, f"rank 1 of {len(explanation.trace.model.vocab):,}, after",
    ):  # fmt: skip
        assert words in text, words
    assert text.count("<article") == len(explanation.neurons)
    for name in explanation.neurons["name"]:
        assert name in text


def test_every_id_is_there_once_and_every_link_leads_to_one(page):
    text = page.read_text(encoding="utf-8")
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids)) > 20
    links = re.findall(r'href="#([^"]+)"', text)
    assert links
    assert set(links) <= set(ids)


def test_each_card_says_who_asked(page, explanation):
    text = unescape(page.read_text(encoding="utf-8"))
    cards = re.findall(r"<article.*?</article>", text, flags=re.DOTALL)
    for card, row in zip(cards, explanation.neurons.itertuples(), strict=True):
        found = fp.drivers(explanation.trace, row.name, position=row.position)
        assert f"who asked: parts of its score {found.score:+.3f}" in card
        first = found.table.iloc[0]
        assert f"Asked by {first.part} ({first.drive:+.2f}), " in card
        assert f" of a score of {found.score:+.2f}." in card
        assert (
            f'<td class="text">{first.part}</td><td class="number">{format_value(first.drive)}</td>'
            in card
        )


def test_a_card_names_earlier_neurons_and_who_asked_the_gate(tmp_path):
    model = fp.load(write_family(tmp_path / "llama", "llama"))
    explanation = fp.explain(model, [3, 1, 4, 1, 5], 2, top=12, effects=False)
    fp.save(explanation, tmp_path / "x.html")
    text = (tmp_path / "x.html").read_text(encoding="utf-8")
    name = explanation.neurons[explanation.neurons.layer > 0].name.iloc[0]
    card = next(c for c in text.split("<article") if f"> {name}@" in c)
    found = fp.drivers(explanation.trace, name)
    for side, of in ((found, ""), (found.gate, " of the gate")):
        assert f"who asked{of}: parts of its score {side.score:+.3f}" in card
        first, asked = side.top(1).iloc[0], card.partition(f"earlier neurons that asked{of}")[2]
        drive = f'<td class="number">{format_value(first.drive)}</td>'
        assert f'<td class="text">{first["name"]}</td>{drive}' in asked


def test_figures_in_the_page_are_the_result(page, explanation):
    drawn = [json.loads(found) for found in PLOT.findall(page.read_text(encoding="utf-8"))]
    assert len(drawn) == 7
    curve = next(d for d in drawn if "without the first" in d["data"][0].get("name", ""))
    assert curve["data"][0]["y"] == pytest.approx(
        explanation.curve.table.probability.tolist(), abs=1e-6
    )
    assert curve["data"][2]["y"] == [1.0] * len(explanation.curve.table)
    notes = [" ".join(note["text"] for note in d["layout"].get("annotations", ())) for d in drawn]
    (paths,) = [text for text in notes if "was read most by this head" in text]
    for row in explanation.paths.itertuples():
        assert f"{row.name}  {row.push_through_attention:+.3f}" in paths
        assert {row.through, "␣basketball"} <= set(re.split(r"[ <>]", paths))
    waterfall = next(d for d in drawn if d["data"][0]["type"] == "waterfall")
    assert waterfall["data"][0]["y"] == pytest.approx(
        explanation.parts.push.tolist(), rel=1e-5, abs=1e-6
    )
    heat = next(d for d in drawn if d["data"][0]["type"] == "heatmap")
    grid = (
        explanation.map.pivot(index="layer", columns="position", values="effect")
        .to_numpy()
        .tolist()
    )
    assert [v for row in heat["data"][0]["z"] for v in row] == pytest.approx(
        [v for row in grid for v in row], rel=1e-5, abs=1e-6
    )


def test_the_page_can_be_got_again_as_it_says(page, tmp_path):
    pre = re.findall(r"<pre>(.*?)</pre>", page.read_text(encoding="utf-8"), re.DOTALL)
    command, python = map(unescape, pre)
    words = shlex.split(command)
    assert words[:2] == ["ffnprobe", "explain"]
    # Sums over another number of threads differ in their last bits.
    threads = str(torch.get_num_threads())
    same = os.environ | {"FFNPROBE_THREADS": threads, "OMP_NUM_THREADS": threads}
    for name, made in (
        ("command", [sys.executable, "-m", "ffnprobe", *words[1:]]),
        ("python", [sys.executable, "-c", python]),
    ):
        folder = tmp_path / name
        folder.mkdir()
        subprocess.run(made, cwd=folder, check=True, capture_output=True, env=same)
        assert (folder / "explain.html").read_bytes() == page.read_bytes()


def test_what_only_python_can_ask_for_is_said_so(hostile_results, tmp_path):
    fp.save(hostile_results["Explanation"], tmp_path / "x.html")
    text = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert "This needs Python" in text
    assert len(re.findall("<pre>", text)) == 1


def test_without_effects_the_page_has_no_map(pocket, tmp_path):
    fp.save(
        fp.explain(pocket, JORDAN, versus=" football", top=2, effects=False), tmp_path / "x.html"
    )
    text = unescape((tmp_path / "x.html").read_text(encoding="utf-8"))
    assert "Where the MLP layers matter" not in text
    assert "␣basketball rather than ␣football, 99.97 %" in text
    assert "--no-effects" in text
    assert "--versus= football" in text.replace("'", "")


def test_a_large_survey_shows_the_most_selective_and_says_so(results, tmp_path, monkeypatch):
    survey = results["Survey"]
    monkeypatch.setattr(surveys, "ROWS", 20)
    fp.save(survey, tmp_path / "x.html")
    text = (tmp_path / "x.html").read_text(encoding="utf-8").partition("<script>")[0]
    assert f"have {len(survey)} neurons; this shows the 20" in text
    best = survey.top(20)
    shown = re.findall(r'<tr><td class="text">(L\d+N\d+)</td>', text)
    assert shown == [name for name in survey.table["name"] if name in set(best["name"])]


def test_json_in_a_script_cannot_end_it():
    text = safe_json({"x": "</script><!--\u2028\u2029&"})
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == {"x": "</script><!--\u2028\u2029&"}

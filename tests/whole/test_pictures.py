"""The stored pictures show what pocket says today, and are small."""

import runpy
import shutil

import pytest

import ffnprobe as fp
from tests.whole.pages import ROOT

FOLDER = ROOT / "docs" / "pictures"
Image = pytest.importorskip("PIL.Image", reason="needs pillow, the extra `docs`")


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(ROOT / "docs" / "scripts" / "pictures.py"))


def test_figures_say_what_pocket_says(script):
    for name, figure in script["draw_figures"]().items():
        if name in script["CROWDED"]:
            continue
        drawn = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
        assert figure.layout.title.text in drawn.replace("&#39;", "'"), name
        texts = [text for trace in figure.data for text in trace.text or ()]
        assert len(texts) > 5
        for text in texts:
            assert str(text) in drawn, (name, text)


def test_pictures_are_small():
    sizes = {path.name: path.stat().st_size for path in FOLDER.iterdir()}
    assert set(sizes) == {"answer.svg", "effect.png", "push.svg", "question.svg", "report.png"}
    assert max(sizes.values()) < 200_000


def test_the_report_shows_what_the_readmes_command_lists(script, pocket):
    program, verb, prompt, answer, *_ = script["find_command"]()
    assert (program, verb) == ("ffnprobe", "explain")
    listed = fp.explain(pocket, prompt, answer).shown
    shown = Image.open(FOLDER / "report.png").info["shows"].split()
    assert shown == listed["name"].tolist(), "python docs/scripts/pictures.py"


@pytest.mark.browser
def test_the_report_can_be_photographed_again(script):
    if not (shutil.which("chromium") or shutil.which("google-chrome")):
        pytest.skip("needs Chromium or Chrome, and none is installed here")
    pytest.importorskip("playwright.sync_api", reason="needs playwright")
    data = script["photograph_report"]()
    assert data.startswith(b"\x89PNG")
    assert len(data) < 200_000
    stored = (FOLDER / "report.png").read_bytes()
    assert data[16:20] == stored[16:20], "as wide as the one that is stored"

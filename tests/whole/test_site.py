"""The documents as a site: it builds without a warning, loads nothing from outside, lacks no name."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from plotly.offline import get_plotlyjs

import ffnprobe as fp
from tests.whole.notebooks import is_plotting
from tests.whole.pages import ROOT

pytest.importorskip("mkdocs", reason="needs mkdocs, the extra `docs`")
EXECUTED = "01_questions_and_answers"
# What a page fetches by itself; a link to follow is another matter.
LOADED = re.compile(r'<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)="((?:https?:)?//[^"]+)"')


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    env = os.environ | {"FFNPROBE_NOTEBOOKS": EXECUTED}  # the others: by the tests of notebooks
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_loads_nothing_from_outside(site):
    pages = list(site.glob("*.html"))
    assert len(pages) > 10
    assert {url for page in pages for url in LOADED.findall(page.read_text("utf-8"))} == set()
    assert LOADED.findall('<script defer src="https://x.org/a.js"></script>') == [
        "https://x.org/a.js"
    ]


def test_every_public_name_has_a_place_on_the_site(site):
    page = (site / "api.html").read_text(encoding="utf-8")
    for name in fp.__all__:
        if not name.startswith("__"):
            assert f'id="{name.lower()}' in page, name
    assert "&gt;&gt;&gt;" in page, "examples are code"
    assert "<blockquote>" not in page, "an example is taken for a quotation"


def test_the_readme_is_the_first_page(site):
    page = (site / "index.html").read_text(encoding="utf-8")
    assert 'src="pictures/report.png"' in page
    assert (site / "pictures" / "report.png").stat().st_size < 200_000
    assert 'href="concepts.html"' in page


def test_links_to_notebooks_lead_to_pages(site):
    page = (site / "index.html").read_text(encoding="utf-8")
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        assert f'href="notebooks/{path.stem}.html"' in page
        assert (site / "notebooks" / f"{path.stem}.html").is_file()


def test_a_notebooks_page_has_its_figures_and_loads_nothing(site):
    page = (site / "notebooks" / f"{EXECUTED}.html").read_text(encoding="utf-8")
    assert LOADED.findall(page.replace(get_plotlyjs(), "")) == []
    source = json.loads((ROOT / "notebooks" / f"{EXECUTED}.ipynb").read_text(encoding="utf-8"))
    drawn = sum(is_plotting(cell | {"source": "".join(cell["source"])}) for cell in source["cells"])
    assert page.count("Plotly.newPlot(") - get_plotlyjs().count("Plotly.newPlot(") >= drawn > 0
    assert not any(cell.get("outputs") for cell in source["cells"]), "the source has no outputs"

"""The published site: what it holds, what merges, what is refused, and how it behaves in a browser."""

import json
import shutil

import pytest

import ffnprobe as fp
from ffnprobe.errors import DataRefused, FileNotWritten
from tests.builders import write_model
from tests.cli.runner import ffnprobe, refused
from tests.conftest import JORDAN

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


@pytest.fixture(scope="module")
def files(tmp_path_factory, pocket):
    """Results as files, as two people saved them."""
    folder = tmp_path_factory.mktemp("files")
    fp.save(fp.explain(pocket, JORDAN, " basketball", top=4), folder / "jordan.json")
    fp.save(fp.search(pocket, " golf", top=3), folder / "golf.json")
    fp.save(fp.read(pocket, "L0N1-L0N9"), folder / "read.parquet")
    return folder


def names(site):
    return {path.name for path in (site / "results").iterdir()}


def test_a_site_holds_pages_data_and_provenance(files, tmp_path, pocket):
    index = fp.publish([files / "jordan.json", files / "golf.json"], tmp_path / "site")
    site = index.parent
    assert {path.name for path in site.iterdir()} == {
        "index.html", "results", "README.md", "site.json", ".nojekyll",
    }  # fmt: skip
    assert len(names(site)) == 8
    entries = json.loads((site / "site.json").read_text())["entries"]
    for entry in entries:
        for suffix in (".json", ".csv", ".parquet"):
            back = fp.open_result(site / "results" / f"{entry['name']}{suffix}")
            assert back.provenance.identity == pocket.identity
        page = (site / "results" / f"{entry['name']}.html").read_text(encoding="utf-8")
        assert pocket.identity in page
        assert '<a href="../index.html">' in page
    text = index.read_text(encoding="utf-8")
    assert "2 results of one model" in text
    assert pocket.fingerprint in text
    assert all(f"results/{entry['name']}.html" in text for entry in entries)


def test_results_of_the_same_model_merge_and_each_is_kept_once(files, tmp_path, pocket):
    mine, yours = tmp_path / "mine", tmp_path / "yours"
    fp.publish([files / "jordan.json", files / "golf.json"], mine)
    fp.publish([files / "golf.json", files / "read.parquet"], yours)
    fp.publish(yours, mine)
    assert len(json.loads((mine / "site.json").read_text())["entries"]) == 3
    before = {path: path.read_bytes() for path in mine.rglob("*") if path.is_file()}
    fp.publish([mine, yours], mine)
    assert {path: path.read_bytes() for path in mine.rglob("*") if path.is_file()} == before


def test_a_live_result_has_its_figures_and_a_file_of_it_does_not_undo_them(tmp_path, pocket):
    trace = fp.run(pocket, JORDAN)
    fp.save(trace, tmp_path / "next.json")
    fp.publish(trace, tmp_path / "site")
    (page,) = (tmp_path / "site" / "results").glob("*.html")
    assert 'class="plot"' in page.read_text(encoding="utf-8")
    fp.publish(tmp_path / "next.json", tmp_path / "site")
    assert 'class="plot"' in page.read_text(encoding="utf-8")


def test_results_of_another_model_are_refused_and_nothing_is_written(files, tmp_path, tiny):
    fp.save(fp.search(tiny, " the", top=2), tmp_path / "tiny.json")
    site = tmp_path / "site"
    with pytest.raises(
        DataRefused, match=r"is of .* not of pocket .*: they have different weights"
    ):
        fp.publish([files / "golf.json", tmp_path / "tiny.json"], site)
    assert not site.exists()
    fp.publish(files / "golf.json", site)
    before = (site / "site.json").read_bytes()
    with pytest.raises(DataRefused, match='"what is published now" is of'):
        fp.publish(tmp_path / "tiny.json", site)
    assert (site / "site.json").read_bytes() == before
    assert len(names(site)) == 4


def test_the_same_weights_with_another_configuration_are_another_model(tmp_path):
    one = write_model(tmp_path / "one")
    other = write_model(tmp_path / "two")
    settings = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(settings | {"layer_norm_epsilon": 1e-3}))
    models = [fp.load(folder, device="cpu") for folder in (one, other)]
    assert models[0].fingerprint == models[1].fingerprint
    with pytest.raises(DataRefused, match="different configuration"):
        fp.publish([fp.search(model, " the", top=2) for model in models], tmp_path / "site")


def test_what_cannot_be_published_is_refused(files, tmp_path):
    with pytest.raises(DataRefused, match="there is no result to publish"):
        fp.publish([], tmp_path / "site")
    with pytest.raises(DataRefused, match="is not a site that ffnprobe published"):
        fp.publish(files, tmp_path / "site")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("…")
    with pytest.raises(FileNotWritten, match="holds files that are not a published site's"):
        fp.publish(files / "golf.json", tmp_path / "mine")
    with pytest.raises(FileNotWritten, match="a site is a folder"):
        fp.publish(files / "golf.json", files / "jordan.json")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "site.json").write_text("{}")
    with pytest.raises(DataRefused, match=r"site\.json is damaged"):
        fp.publish(files / "golf.json", tmp_path / "site")


def test_the_command_prints_the_index(files, tmp_path):
    done = ffnprobe(
        "publish", files / "jordan.json", files / "golf.json", "--to", tmp_path / "site"
    )
    assert done.exit_code == 0, done.output
    assert done.stdout == f"{tmp_path / 'site' / 'index.html'}\n"
    assert "there is no file" in refused("publish", tmp_path / "no.json", "--to", tmp_path / "x")
    assert not (tmp_path / "x").exists()


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium or Chrome, and none is installed here")
@pytest.mark.parametrize("width", [1280, 390])
def test_the_site_works_from_disk_in_a_browser(files, tmp_path, width, pocket):
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    given = [files / "jordan.json", fp.search(pocket, " golf", top=3), fp.read(pocket, "L0N1-L0N9")]
    index = fp.publish(given, tmp_path / "site")
    last = fp.open_result(files / "jordan.json").tables()["paths"].name.iloc[-1]
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 900})
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(index.as_uri())
        rows = page.locator("#results tbody tr")
        assert rows.count() == 3
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        box = page.locator("input[type=search]")
        for words, found in (
            ("golf", 1),
            ("basketball", 1),
            ("L0N9", 1),
            (str(last), 1),
            ("zzz", 0),
        ):
            box.fill(words)
            assert rows.locator("visible=true").count() >= found, words
            assert (rows.locator("visible=true").count() == 0) == (found == 0), words
        box.fill("")
        page.get_by_role("link", name="neurons that push toward ␣golf").click()
        page.wait_for_selector(".plot > .plot-container")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for suffix in ("json", "csv", "parquet"):
            link = page.get_by_role("link", name=suffix, exact=True).get_attribute("href")
            assert (index.parent / "results" / link).is_file()
        page.get_by_role("link", name="all results").click()
        assert page.locator("#results tbody tr").count() == 3
        assert said == []
        assert all(url.startswith("file://") for url in asked)
        browser.close()

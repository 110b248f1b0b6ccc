"""The pages in a real browser: nothing from outside, nothing harmful, everything works."""

import shutil

import pytest

import ffnprobe as fp
from ffnprobe.views.saving import save_figure
from tests.conftest import JORDAN

pytestmark = pytest.mark.browser
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
if CHROMIUM is None:
    pytest.skip("needs Chromium or Chrome, and none is installed here", allow_module_level=True)
playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield found
        found.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory, pocket, results, hostile_results):
    folder = tmp_path_factory.mktemp("pages")
    fp.save(fp.explain(pocket, JORDAN, " basketball", top=6), folder / "explanation.html")
    fp.save(hostile_results["Explanation"], folder / "hostile.html")
    fp.save(hostile_results["Survey"], folder / "hostile-survey.html")
    fp.save(hostile_results["Stages"], folder / "hostile-stages.html")
    fp.save(results["Survey"], folder / "survey.html")
    fp.save(results["Pushes"], folder / "pushes.html")
    # As `--plot` writes them.
    save_figure(fp.plot(results["Pushes"]), folder / "figure.html")
    save_figure(fp.plot(hostile_results["Stages"]), folder / "hostile-figure.html")
    return folder


class Opened:
    """A page with what it asked for and complained of."""

    def __init__(self, browser, path, width=1280):
        self.page = browser.new_page(viewport={"width": width, "height": 900})
        self.page.set_default_timeout(60_000)
        self.asked, self.said = [], []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: self.said.append(dialog.message))
        self.page.goto(path.as_uri())
        self.wait("Boolean(window.Plotly)")

    def open_all(self):
        """Open what is folded, and wait for its figures."""
        self.page.evaluate("document.querySelectorAll('details').forEach(d => (d.open = true))")
        self.wait(
            "[...document.querySelectorAll('.plot')].every(p => p.querySelector('.plot-container'))"
        )

    def wait(self, condition):
        """Wait until a condition holds; the page's own policy lets it evaluate nothing itself."""
        for _ in range(300):
            if self.page.evaluate(condition):
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(condition)

    def column(self, table, number):
        return self.page.evaluate(
            "([t, n]) => [...document.getElementById(t).tBodies[0].rows]"
            ".filter(r => !r.hidden).map(r => r.cells[n].textContent)", [table, number],
        )  # fmt: skip


@pytest.fixture
def opened(browser, folder):
    pages = []

    def open_page(name, **options):
        pages.append(Opened(browser, folder / name, **options))
        return pages[-1]

    yield open_page
    for one in pages:
        one.page.close()


@pytest.mark.parametrize(
    "name",
    ["explanation.html", "survey.html", "pushes.html", "hostile.html", "hostile-survey.html",
     "hostile-stages.html", "figure.html", "hostile-figure.html"],
)  # fmt: skip
@pytest.mark.parametrize("width", [1280, 390])
def test_a_page_opens_from_disk_alone_and_without_complaint(opened, name, width):
    one = opened(name, width=width)
    one.open_all()
    places = one.page.locator(".plot").count()
    assert places > 0
    assert one.page.locator(".plot > .plot-container").count() == places
    assert one.asked == [one.page.url]
    assert one.said == []
    assert one.page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_click_sorts_and_a_second_one_turns_round(opened):
    one = opened("explanation.html")
    heads = one.page.locator("#table-1 th")
    names = heads.all_inner_texts()
    at = next(n for n, name in enumerate(names) if name.startswith("effect"))
    heads.nth(at).locator("button").click()
    down = [float(cell) for cell in one.column("table-1", at)]
    assert down == sorted(down, reverse=True)
    assert len(set(down)) > 2
    assert heads.nth(at).get_attribute("aria-sort") == "descending"
    heads.nth(at).locator("button").click()
    assert [float(cell) for cell in one.column("table-1", at)] == sorted(down)
    heads.nth(0).locator("button").click()
    assert one.column("table-1", 0) == sorted(one.column("table-1", 0))
    assert heads.nth(at).get_attribute("aria-sort") == "none"


def test_the_search_box_keeps_the_rows_that_hold_every_word(opened):
    one = opened("survey.html")
    name = one.column("table-1", 0)[1]
    box = one.page.locator('input[data-table="table-1"]')
    box.fill(name.lower())
    assert name in one.column("table-1", 0)
    assert len(one.column("table-1", 0)) < 20
    box.fill(f"{name} nowhere")
    assert one.column("table-1", 0) == []
    assert one.page.locator('input[data-table="table-1"] + span').inner_text().startswith("0 of ")
    box.fill("")
    assert len(one.column("table-1", 0)) > 20


def test_a_name_leads_to_its_card_and_what_is_folded_opens_by_click_and_on_paper(opened):
    one = opened("explanation.html")
    folded = one.page.locator("details")
    assert one.page.locator("details[open]").count() == 0
    one.page.locator("#paths > summary").click()
    one.page.wait_for_selector("#paths[open] .plot-container")
    link = one.page.locator("#table-1 tbody a").nth(2)
    link.click()
    assert one.page.evaluate("document.querySelector(':target').id") == link.inner_text()
    assert one.page.locator("article:target details .beside").is_hidden()
    one.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert one.page.locator("details[open]").count() == folded.count()
    assert one.page.locator("article:target details .beside").is_visible()
    assert one.page.locator(".plot .plot-container").count() == one.page.locator(".plot").count()


def test_on_paper_a_figure_fits_and_on_the_screen_it_is_wide_again(opened):
    one = opened("explanation.html")
    width = "document.querySelector('.plot .main-svg').getBoundingClientRect().width"
    wide = one.page.evaluate(width)
    assert wide > 900
    one.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert one.page.evaluate(width) == 680
    one.page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    one.wait(f"{width} > 900")
    assert one.said == []


def test_a_browser_that_cannot_unpack_figures_says_so(browser, folder):
    page = browser.new_page()
    said = []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.add_init_script("delete window.DecompressionStream")
    page.goto((folder / "pushes.html").as_uri())
    page.wait_for_selector(".plot:has-text('cannot unpack the figures')")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.locator("table.sortable").count() > 0
    assert said == []
    page.close()


@pytest.mark.parametrize("name", ["hostile.html", "hostile-survey.html", "hostile-stages.html"])
def test_hostile_tokens_are_text_and_nothing_runs(opened, name):
    one = opened(name)
    one.open_all()
    assert one.page.evaluate("window.harmed") is None
    assert one.page.locator("img, iframe, object, embed").count() == 0
    text = one.page.evaluate("document.body.textContent")
    for token in ("<script>window.harmed=1</script>", "</td>", '"><img␣src=x␣onerror="window.harmed=1">',
                  "⟨U+2028⟩", "⟨U+0000⟩"):  # fmt: skip
        assert token in text, token
    one.page.locator(".plot").first.hover()
    one.page.wait_for_timeout(100)
    assert one.page.evaluate("window.harmed") is None
    assert one.said == []


@pytest.mark.parametrize("name", ["pushes.html", "figure.html"])
def test_a_script_that_was_not_written_with_the_page_cannot_run(folder, browser, tmp_path, name):
    """The last line of defence: were a token let through, the page's own policy would stop it."""
    text = (folder / name).read_text(encoding="utf-8")
    (tmp_path / "x.html").write_text(
        text.replace("<h1>", "<script>window.harmed=1</script><img src=x onerror='window.harmed=1'><h1>"),
        encoding="utf-8",
    )  # fmt: skip
    one = Opened(browser, tmp_path / "x.html")
    assert one.page.evaluate("window.harmed") is None
    assert any("Content Security Policy" in said for said in one.said)
    one.page.close()


def test_a_figure_becomes_a_png(results, tmp_path):
    pytest.importorskip("kaleido", reason="needs kaleido")
    figure = fp.plot(results["Trace"])
    save_figure(figure, tmp_path / "x.png")
    data = (tmp_path / "x.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    width = int.from_bytes(data[16:20], "big")
    assert width == 2 * figure.layout.width

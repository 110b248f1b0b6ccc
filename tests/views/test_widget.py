"""The widget: its parts in Python, and its script in a real browser, as a notebook would run it."""

import base64
import json
import shutil
from collections.abc import Iterator

import pytest

import ffnprobe as fp
from ffnprobe.errors import DataRefused
from ffnprobe.views import page
from tests.conftest import JORDAN

pytest.importorskip("anywidget", reason="needs the extra widget")
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
WIDGET = "application/vnd.jupyter.widget-view+json"
# What a notebook is to a widget: a model with its state, and messages to and from the kernel.
HOST = """<!doctype html><meta charset="utf-8"><body style="margin:0">
<h1 class="token">the notebook's own</h1><table class="sortable"><thead><tr><th>own</th></tr></thead></table>
<div id="one"></div><div id="two"></div>
<script id="state" type="application/json">%s</script>
<script type="module">
const state = JSON.parse(document.getElementById("state").textContent);
const url = URL.createObjectURL(new Blob([state._esm], { type: "text/javascript" }));
const widget = (await import(url)).default;
window.asked = 0;
for (const id of ["one", "two"]) {
  const hearers = new Set();
  const model = {
    get: (name) => state[name],
    on: (name, hear) => hearers.add(hear),
    off: (name, hear) => hearers.delete(hear),
    send: (content) => {
      window.asked += 1;
      if (!state.plotly) return;
      const bytes = Uint8Array.from(atob(state.plotly), (c) => c.charCodeAt(0));
      setTimeout(() => hearers.forEach((hear) => hear({ plotly: true }, [bytes])), 10);
    },
  };
  await widget.render({ model, el: document.getElementById(id) });
}
window.isDone = true;
</script>"""


@pytest.fixture(scope="module")
def explanation(pocket):
    return fp.explain(pocket, JORDAN, " basketball", top=4)


def test_a_widget_holds_the_report_and_a_card_for_readers(explanation):
    widget = fp.show(explanation)
    bundle = widget._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    assert WIDGET in data
    assert data["text/html"] == explanation._repr_html_()
    assert "<script" not in data["text/html"]
    assert 'id="numbers"' in widget.html
    assert len(widget.html) + len(widget._esm) + len(widget.look) < 1_000_000  # no plotly in it
    assert "http://" not in widget._esm + widget.look
    assert "https://" not in widget._esm + widget.look


def test_plotly_is_sent_when_asked_for_and_only_then(explanation, monkeypatch):
    widget = fp.show(explanation)
    sent = []
    monkeypatch.setattr(
        type(widget), "send", lambda self, content, buffers: sent.append((content, buffers))
    )
    widget._handle_custom_msg({"ask": "the moon"}, [])
    assert sent == []
    widget._handle_custom_msg({"ask": "plotly"}, [])
    ((content, (script,)),) = sent
    assert content == {"plotly": True}
    assert b"plotly.js" in script[:100]


def test_without_anywidget_there_is_a_card(explanation, monkeypatch):
    monkeypatch.setattr(page, "find_spec", lambda name: None)
    shown = fp.show(explanation)
    assert shown._repr_html_() == explanation._repr_html_()
    assert repr(shown).startswith("StaticView(␣basketball after")


def test_what_is_not_a_result_is_refused():
    with pytest.raises(DataRefused, match="int is not a result of ffnprobe"):
        fp.show(3)


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    if CHROMIUM is None:
        pytest.skip("needs Chromium or Chrome, and none is installed here")
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


def open_host(browser, folder, widget, *, kernel: bool = True):
    """Open a page with the widget twice; return the page and what it said and asked for."""
    from plotly.offline import get_plotlyjs

    state = {"_esm": widget._esm, "html": widget.html, "look": widget.look}
    if kernel:
        state["plotly"] = base64.b64encode(get_plotlyjs().encode()).decode()
    path = folder / "host.html"
    path.write_text(HOST % json.dumps(state).replace("<", "\\u003c"), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1100, "height": 900})
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_function("window.isDone", timeout=60_000)
    return page, said, asked


def open_all(page):
    """Open what is folded, and wait until its figures are drawn."""
    folded = page.locator("#one details, #two details")
    folded.evaluate_all("all => all.forEach((one) => (one.open = true))")
    for _ in range(100):
        if page.locator(".plot:not(:has(.plot-container))").count() == 0:
            return
        page.wait_for_timeout(100)


@pytest.mark.browser
def test_figures_tables_and_cards_work_in_a_browser(browser, tmp_path, explanation):
    page, said, asked = open_host(browser, tmp_path, fp.show(explanation))
    open_all(page)
    one = page.locator("#one")
    places = one.locator(".plot").count()
    assert places > 3
    assert one.locator(".plot > .plot-container").count() == places
    assert page.locator("#two .plot > .plot-container").count() == places
    assert page.evaluate("window.asked") == 1  # once a page
    # Axis titles are in the second of two drawings that lie on each other.
    drawings = one.locator(".plot").first.locator("svg.main-svg")
    tops = drawings.evaluate_all("all => all.map((one) => one.getBoundingClientRect().top)")
    assert len(tops) > 1
    assert len(set(tops)) == 1
    heads = one.locator("#table-1 th")
    at = next(n for n, name in enumerate(heads.all_inner_texts()) if name.startswith("push"))
    heads.nth(at).locator("button").click()
    cells = one.locator(f"#table-1 tbody tr td:nth-child({at + 1})").all_inner_texts()
    values = [float(cell) for cell in cells]
    assert values == sorted(values, reverse=True)
    assert page.locator("#two #table-1 th").nth(at).get_attribute("aria-sort") == "none"
    first = one.locator("#table-1 tbody tr").first.locator("a")
    first.click()
    assert one.locator(f'article[id="{first.inner_text()}"]').is_visible()
    # The notebook's own style and tables are left alone.
    assert page.locator("h1.token").evaluate("e => getComputedStyle(e).fontSize") == "32px"
    page.locator("table.sortable > thead th", has_text="own").first.click()
    assert page.locator("body > table th").get_attribute("aria-sort") is None
    assert said == []
    assert all(url.startswith(("file://", "blob:")) for url in asked)
    page.close()


@pytest.mark.browser
def test_hostile_tokens_do_nothing(browser, tmp_path, hostile_results):
    page, said, _ = open_host(browser, tmp_path, fp.show(hostile_results["Explanation"]))
    open_all(page)
    assert page.locator("#one .plot > .plot-container").count() > 0
    assert said == []
    page.close()


@pytest.mark.browser
def test_without_a_kernel_the_figures_say_so(browser, tmp_path, explanation):
    widget = fp.show(explanation)
    widget._esm = widget._esm.replace("PATIENCE = 8000", "PATIENCE = 50")
    page, said, _ = open_host(browser, tmp_path, widget, kernel=False)
    assert "needs the kernel" in page.locator("#one .plot").first.inner_text()
    assert page.locator("#one #table-1 tbody tr").count() == len(explanation.neurons)
    assert said == []
    page.close()

"""The explorer in a real browser: a new user's path, and everything that could go wrong on it."""

import math
import re
import threading
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

import ffnprobe as fp
from ffnprobe.views.explorer import session as sessions
from ffnprobe.views.explorer.session import Session
from tests.conftest import JORDAN
from tests.explorer.conftest import running

pytestmark = pytest.mark.browser
ASKED = {"prompt": JORDAN, "answer": " basketball"}
PAGES = {
    "welcome": "",
    "prompt": f"?{urlencode(ASKED | {'after': 'L2', 'position': '3'})}",
    "neuron": f"neuron/L0N378?{urlencode(ASKED | {'set': '2'})}",
    "search": f"search?{urlencode({'token': ' basketball', 'layers': '0-2'})}",
    "facts": "facts?relation=sport",
}
PATIENCE = 60_000


class Tab:
    """A page with what it asked for and complained of."""

    def __init__(self, browser, address, **options):
        self.context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | options))  # fmt: skip
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.address, self.asked, self.said = address, [], []
        self.context.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: self.said.append(dialog.message))

    def open(self, where=""):
        self.page.goto(self.address + where)
        self.page.wait_for_selector("#page h1")
        return self

    def text(self, selector):
        return self.page.locator(selector).first.inner_text()

    def options(self):
        return {name: values[0] for name, values in parse_qs(urlsplit(self.page.url).query, keep_blank_values=True).items()}  # fmt: skip

    def await_evidence(self):
        self.page.wait_for_selector("#together table")

    def cells(self, table, column):
        heads = self.page.locator(f"{table} th").all_inner_texts()
        return self.page.locator(f"{table} tbody td:nth-child({heads.index(column) + 1})").all_inner_texts()  # fmt: skip

    def close(self):
        outside = [
            url for url in self.asked if not url.startswith((self.address, "data:", "blob:"))
        ]
        self.context.close()
        assert outside == []
        assert self.said == []


@pytest.fixture
def tab(browser, explorer):
    opened = []

    def open_tab(where="", address=explorer, **options):
        opened.append(Tab(browser, address, **options))
        return opened[-1].open(where)

    yield open_tab
    for one in opened:
        one.close()


def test_a_new_user_goes_from_a_prompt_to_an_export(tab, pocket, tmp_path):
    one = tab()
    page = one.page
    page.locator("#prompt").fill(JORDAN)
    page.locator("#prompt").press("Enter")
    page.wait_for_selector("#predictions td")
    assert one.text("h1") == "␣basketball comes next"
    assert page.title() == "␣basketball comes next · ffnprobe"
    truth = fp.run(pocket, JORDAN).predictions(10)
    assert one.cells("#predictions", "token") == truth.token.tolist()

    page.locator("#temperature").fill("2")
    page.wait_for_selector("#predictions output:text-is('temperature 2')")
    warm = fp.run(pocket, JORDAN).predictions(10, temperature=2.0).probability
    shown = [float(cell) for cell in one.cells("#predictions", "probability")]
    assert shown == pytest.approx(warm.tolist(), rel=1e-3)
    page.wait_for_url("**temperature=2**")

    page.get_by_role("link", name="␣basketball", exact=True).first.click()
    one.await_evidence()
    assert one.options()["answer"] == " basketball"
    assert one.options()["temperature"] == "2", "the slider stays where it was moved to"
    explanation = fp.explain(pocket, JORDAN, " basketball")
    names = one.cells("#evidence", "name")
    assert set(names) & set(explanation.neurons.name)

    page.locator(f"#evidence a:text-is('{names[0]}')").first.click()
    page.wait_for_selector("#set")
    assert urlsplit(page.url).path == f"/neuron/{names[0]}"
    assert one.options()["prompt"] == JORDAN
    page.locator("#set").fill("-2")
    page.wait_for_selector("#steered td")
    steered = fp.steer(pocket, JORDAN, {names[0]: -2.0}).predictions(8)
    after = [float(cell) for cell in one.cells("#steered", "probability after")]
    assert after == pytest.approx(steered.probability_after.tolist(), rel=2e-3)
    page.get_by_role("button", name="Generate both texts").click()
    page.wait_for_selector("#texts dd")
    assert page.locator("#texts dt").all_inner_texts() == ["as it is", f"{names[0]} = -2"]

    page.wait_for_selector("#recipes:has-text('steer')")
    assert f"--set {names[0]}=-2" in one.text("#recipes")
    page.locator("#save-table").get_by_text("predictions", exact=True).click()
    for button, suffix in (("csv", ".csv"), ("parquet", ".parquet"), ("HTML report", ".html")):
        with page.expect_download() as waiting:
            page.get_by_role("button", name=button, exact=True).click()
        file = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(file)
        assert file.suffix == suffix
        if suffix == ".html":
            assert "predictions" in file.read_text(encoding="utf-8")
            continue
        table = fp.open_result(file).table
        assert table.attrs["provenance"]["prompt"] == JORDAN
        assert table.probability_after[:8].tolist() == pytest.approx(steered.probability_after.tolist())  # fmt: skip


def test_back_and_reload_show_the_same(tab):
    one = tab(PAGES["prompt"])
    page = one.page
    one.await_evidence()
    first = page.url
    page.get_by_role("link", name="L4", exact=True).click()
    page.wait_for_selector("h3:has-text('after L4')")
    page.locator("#evidence a").first.click()
    page.wait_for_selector("#set")
    page.locator("#set").fill("3")
    page.wait_for_selector("#steered output:has-text('= 3')")
    page.wait_for_url("**set=3**")
    page.reload()
    page.wait_for_selector("#steered td")
    assert one.text("#steered output").endswith("= 3")
    page.go_back()
    page.wait_for_selector("h3:has-text('after L4')")
    page.go_back()
    page.wait_for_selector("h3:has-text('after L2')")
    assert page.url == first
    one.await_evidence()
    page.go_forward()
    page.wait_for_selector("h3:has-text('after L4')")


def test_a_click_on_a_cell_of_the_lens_shows_the_tokens_there(tab, jordan):
    one = tab(f"?{urlencode({'prompt': JORDAN})}")
    page = one.page
    page.wait_for_selector("#lens .heatmaplayer")
    page.locator("#lens").scroll_into_view_if_needed()
    box = page.locator("#lens .heatmaplayer").first.bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.5 / 7, box["y"] + box["height"] * 0.5 / 7)
    page.wait_for_selector("h3:has-text('after embedding at <|endoftext|> (position 0)')")
    truth = jordan.predictions(10, position=0, after="embedding")
    shown = page.locator("section:has(#lens) table")
    assert shown.locator("tbody td:nth-child(2)").all_inner_texts() == truth.token.tolist()


WRONG = [
    ({"prompt": ""}, "the prompt is empty."),
    ({"prompt": JORDAN, "answer": " golf", "versus": " basket ball"}, '" basket ball" is 2 tokens here: "␣basket" "␣ball"'),
    ({"prompt": JORDAN, "answer": " basketball", "versus": " basketball"}, "nothing to compare"),
    ({"prompt": "word " * 100}, "pocket has 64 positions"),
    ({"prompt": "word " * 5000}, "takes at most 20,000"),
    ({"prompt": JORDAN, "temperature": "warm"}, 'temperature = "warm" is not a number'),
    ({"prompt": JORDAN, "position": "99"}, "position 99 is outside the prompt"),
    ({"prompt": JORDAN, "answer_id": "999999"}, "token id 999999 does not exist"),
]  # fmt: skip


def test_what_cannot_be_shown_is_said_in_words(tab):
    one = tab()
    for asked, said in WRONG:
        one.open(f"?{urlencode(asked)}")
        one.page.wait_for_selector("[role=alert]")
        assert said in one.text("[role=alert]")


def test_an_empty_prompt_typed_is_said_and_mended(tab):
    one = tab()
    one.page.get_by_role("button", name="Run").click()
    one.page.wait_for_selector("[role=alert]")
    assert "the prompt is empty." in one.text("[role=alert]")
    one.page.locator("#prompt").fill(JORDAN)
    one.page.get_by_role("button", name="Run").click()
    one.page.wait_for_selector("#predictions td")
    assert one.page.locator("[role=alert]").count() == 0


def test_an_answer_without_its_space_is_noted_never_repaired(tab):
    one = tab(f"?{urlencode({'prompt': JORDAN, 'answer': 'football'})}")
    note = one.page.locator("p:has-text('With a leading space it is a different token')")
    note.locator("a").click()
    one.page.wait_for_url(re.compile(r"answer=(\+|%20)football"))


def test_two_tabs_on_different_prompts_do_not_mix(tab):
    others = {"Tiger Woods plays the sport of": "golf", "The capital of France is": "Paris"}
    tabs = {}
    for prompt, answer in others.items():
        tabs[answer] = tab(f"?{urlencode({'prompt': prompt, 'answer': f' {answer}'})}")
    for answer, one in tabs.items():
        one.await_evidence()
        assert one.text("h1") == f"␣{answer} comes next"
        assert f"the neurons behind ␣{answer} after" in one.page.locator("#evidence caption").inner_text()  # fmt: skip
        assert one.page.locator("#prompt").input_value() in others
        assert answer in one.page.locator("#recipes").inner_text()


@pytest.mark.parametrize("name", PAGES)
def test_on_a_dark_phone_every_page_fits_is_labelled_and_dark(tab, name):
    one = tab(PAGES[name], color_scheme="dark", viewport={"width": 390, "height": 800})
    page = one.page
    if name == "search":
        page.wait_for_selector("#kinds .main-svg")
    if name in ("prompt", "search"):
        page.wait_for_selector(".js-plotly-plot .main-svg")
        drawn = page.evaluate("document.querySelector('.main-svg').style.background")
        assert drawn == "rgb(23, 24, 26)"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(23, 24, 26)"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    unnamed = page.evaluate(
        "[...document.querySelectorAll('input, textarea, select, button, a')]"
        ".filter(e => !(e.labels?.length || e.getAttribute('aria-label') || e.textContent.trim()))"
        ".map(e => e.outerHTML)"
    )
    assert unnamed == []


def test_the_users_colours_are_followed_while_the_page_is_open(tab):
    one = tab(PAGES["prompt"])
    one.page.wait_for_selector(".main-svg[style*='background: white']")
    one.page.emulate_media(color_scheme="dark")
    one.page.wait_for_selector(".main-svg[style*='background: rgb(23, 24, 26)']")


def test_the_keyboard_alone_leads_from_a_prompt_to_a_neuron(tab):
    one = tab(PAGES["prompt"])
    page = one.page
    one.await_evidence()
    link = page.locator("#evidence a").first
    name = link.inner_text()
    link.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#set")
    assert one.text("h1").startswith(name)
    assert page.evaluate("document.activeElement.id") == "page"
    page.locator("#set").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#steered td")


def test_search_finds_neurons_of_a_kind_and_the_field_leads_to_them(tab, pocket):
    one = tab("search")
    page = one.page
    page.wait_for_selector("#kinds .main-svg")
    page.locator("#tokens").fill(" basketball")
    page.locator("#kind").select_option("prediction")
    page.get_by_role("button", name="Search", exact=True).click()
    page.wait_for_selector("#found td")
    kind = fp.survey(pocket).of_kind("prediction")
    truth = fp.search(pocket, " basketball", k=20, among=kind)
    assert one.cells("#found", "name") == truth.table.name.tolist()
    page.wait_for_selector("#recipes:has-text('--kind')")
    assert "--top 20 --kind prediction -- ' basketball'" in one.text("#recipes")
    point = page.locator("#kinds .scatterlayer .trace:last-child .points path").first
    point.scroll_into_view_if_needed()
    box = point.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_url("**/neuron/**")
    page.wait_for_selector(".kind")
    assert one.text(".kind") == "prediction"


def test_facts_lead_to_prompts(tab):
    one = tab("facts?relation=sport")
    one.page.get_by_role("link", name=JORDAN, exact=True).click()
    one.await_evidence()
    assert one.options() == {"prompt": JORDAN, "answer": " basketball"}


def test_a_card_shows_the_examples_of_a_scan(tab, session):
    one = tab("neuron/L0N378")
    found = fp.examples(session.scan, "L0N378")
    marks = one.page.locator(".quotes mark").all_inner_texts()
    assert marks == [e.token for side in found.sides(5).values() for e in side]


def test_the_evidence_fills_in_and_can_be_stopped_and_begun_again(tab, pocket, monkeypatch):
    gate, real = threading.Semaphore(0), sessions.explain_stepwise

    def slowly(*given, progress, **options):
        def count(done, total):
            progress(done, total)
            gate.acquire(timeout=30)

        return real(*given, progress=count, **options)

    monkeypatch.setattr(sessions, "explain_stepwise", slowly)
    with running(Session(pocket)) as address:
        one = tab(PAGES["prompt"], address=address)
        page = one.page
        page.wait_for_selector("#map figure")
        page.wait_for_selector("#progress progress")
        heads = page.locator("#evidence th").all_inner_texts()
        assert "push" in heads
        assert "effect" not in heads, "nothing is measured yet"
        gate.release(2)
        page.wait_for_selector("#evidence th:text-is('effect')")
        known = one.cells("#evidence", "effect")
        assert any(known), "the first layer's effects are there"
        assert page.locator("#together table").count() == 0
        page.get_by_role("button", name="Cancel").click()
        gate.release()
        page.wait_for_selector("#progress:has-text('cancelled')")
        assert page.locator("#together table").count() == 0
        gate.release(1000)
        page.get_by_role("button", name="Measure the effects").click()
        one.await_evidence()
        effects = [float(cell) for cell in one.cells("#evidence", "effect")]
        truth = fp.explain(pocket, JORDAN, " basketball").neurons.effect.tolist()
        assert effects == pytest.approx(truth, rel=2e-3, abs=1e-5)
        assert not any(math.isnan(effect) for effect in effects)


@pytest.mark.parametrize("path", ["", "neuron/L1N1", "search"])
def test_hostile_tokens_are_text_and_nothing_runs(tab, hostile, hostile_explorer, path):
    token = next(n for n, t in enumerate(hostile.vocab.shown) if t.startswith("<script>"))
    asked = {"prompt": "<img src=y onerror='window.harmed=1'><script>", "answer_id": token}
    if path == "search":
        asked["token"] = "<"
    one = tab(f"{path}?{urlencode(asked)}", address=hostile_explorer)
    page = one.page
    if path == "":
        page.wait_for_selector("#together table")
    if path == "search":
        page.wait_for_selector("#survey table")
    page.wait_for_timeout(300)
    assert page.evaluate("window.harmed") is None
    assert page.locator("#page img, iframe, object, embed, #page script").count() == 0
    text = page.evaluate("document.body.textContent")
    wanted = {"": "<script>window.harmed=1</script>", "neuron/L1N1": "<script>window.harmed=1</script>", "search": "</td>"}  # fmt: skip
    assert wanted[path] in text


def test_a_script_let_through_would_not_run(tab):
    one = tab()
    one.page.evaluate("document.getElementById('page').insertAdjacentHTML('beforeend', \"<img src=x onerror='window.harmed=1'>\")")  # fmt: skip
    one.page.wait_for_timeout(300)
    assert one.page.evaluate("window.harmed") is None
    assert any("Content Security Policy" in said for said in one.said)
    one.said.clear()

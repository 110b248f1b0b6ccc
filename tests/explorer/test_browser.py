"""The explorer in a real browser: a new user's path, and everything that could go wrong on it."""

import math
import re
import threading
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

import ffnprobe as fp
from ffnprobe.views.explorer import security
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
LISTED = "#evidence > .scroll"  # the ten rows, before everything that is folded


class Tab:
    """A page with what it asked for and complained of."""

    def __init__(self, browser, address, **options):
        self.context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | options))  # fmt: skip
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.address, self.asked, self.said = address.partition("?")[0], [], []
        # The address that is printed lets the browser in, as a user's first visit does.
        self.page.goto(address)
        self.page.wait_for_selector("#page h1")
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
        self.page.wait_for_selector("#part-settings")

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
    names = one.cells(LISTED, "name")
    assert names == explanation.shown.name.tolist()

    page.locator(f"#evidence a:text-is('{names[0]}')").first.click()
    page.wait_for_selector("#set")
    name, position = names[0].split("@")
    assert urlsplit(page.url).path == f"/neuron/{name}"
    assert one.options()["position"] == position
    assert one.options()["prompt"] == JORDAN
    page.locator("#set").fill("-2")
    page.wait_for_selector("#steered td")
    steered = fp.steer(pocket, JORDAN, {name: -2.0}).predictions(8)
    after = [float(cell) for cell in one.cells("#steered", "probability after")]
    assert after == pytest.approx(steered.probability_after.tolist(), rel=2e-3)
    page.get_by_role("button", name="Generate both texts").click()
    page.wait_for_selector("#texts dd")
    assert page.locator("#texts dt").all_inner_texts() == ["as it is", f"{name} = -2"]

    page.wait_for_selector("#recipes:has-text('steer')")
    assert f"--set={name}=-2" in one.text("#recipes")
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
    ({"prompt": JORDAN, "answer": " golf", "versus": " basketball team"}, '" basketball team" is 2 tokens here: "␣basketball" "␣team"'),
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
        assert one.text("#evidence .strong").startswith(f"␣{answer}, ")
        assert one.page.locator("#prompt").input_value() in others
        # The export bar follows the evidence by one more request.
        one.page.wait_for_selector(f'#recipes:has-text("explain"):has-text("{answer}")')


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
    assert one.text("h1").startswith(name.partition("@")[0])
    assert page.evaluate("document.activeElement.id") == "page"
    page.locator("#set").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#steered td")


def test_search_finds_neurons_of_a_kind_and_the_field_leads_to_them(tab, pocket):
    one = tab("search")
    page = one.page
    page.wait_for_selector("#kinds .main-svg")
    page.locator("#tokens").fill(" basketball")
    page.locator("#kind").select_option("entropy")
    page.get_by_role("button", name="Search", exact=True).click()
    page.wait_for_selector("#found td")
    survey = fp.survey(pocket)
    kind = survey.of_kind("entropy")
    truth = fp.search(pocket, " basketball", top=20, among=kind)
    assert one.cells("#found", "name") == truth.table.name.tolist()
    page.wait_for_selector("#recipes:has-text('--kind')")
    assert "--top=20 --kind=entropy -- ' basketball'" in one.text("#recipes")
    point = page.locator("#kinds .scatterlayer .trace:last-child .points path").first
    point.scroll_into_view_if_needed()
    box = point.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_url("**/neuron/**")
    page.wait_for_selector(".kind")
    name = urlsplit(page.url).path.rpartition("/")[2]
    assert one.text(".kind") == survey.table.set_index("name").kind[name]


def test_facts_lead_to_prompts(tab):
    one = tab("facts?relation=sport")
    one.page.get_by_role("link", name=JORDAN, exact=True).click()
    one.await_evidence()
    assert one.options() == {"prompt": JORDAN, "answer": " basketball"}


def test_a_card_shows_the_examples_of_a_scan(tab, session):
    one = tab("neuron/L0N378")
    found = fp.examples(session.scan, "L0N378")
    marks = one.page.locator(".quote mark").all_inner_texts()
    assert marks == [e.token for side in found.sides(5).values() for e in side]


def test_the_evidence_can_be_stopped_and_begun_again(tab, pocket, monkeypatch):
    gate, real = threading.Semaphore(0), sessions.explain

    def slowly(*given, progress, **options):
        progress(3, 7)
        gate.acquire(timeout=60)
        return real(*given, progress=progress, **options)

    monkeypatch.setattr(sessions, "explain", slowly)
    with running(Session(pocket)) as address:
        one = tab(PAGES["prompt"], address=address)
        page = one.page
        page.wait_for_selector("#progress progress")
        assert "step 4 of 7" in one.text("#progress")
        assert page.locator("#predictions td").count()
        assert page.locator("#evidence table").count() == 0
        with page.expect_response(
            lambda reply: '"cancel.disabled"' in (reply.request.post_data or "")
        ):
            page.get_by_role("button", name="Cancel").click()
        gate.release()
        page.wait_for_selector("#progress:has-text('cancelled')")
        assert page.locator("#part-curve").count() == 0
        gate.release(1000)
        page.get_by_role("button", name="Measure the effects").click()
        one.await_evidence()
        effects = [float(cell) for cell in one.cells(LISTED, "effect")]
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
        page.wait_for_selector("#evidence table")
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


def test_a_browser_is_let_in_by_the_address_and_its_scripts_do_not_see_the_token(browser, explorer):
    context = browser.new_context()
    page = context.new_page()
    bare = explorer.partition("?")[0]
    page.goto(bare)
    assert "needs its access token" in page.inner_text("body")
    page.goto(f"{bare}facts?{explorer.partition('?')[2]}&relation=sport")
    page.wait_for_selector("#page h1")
    assert page.url == f"{bare}facts?relation=sport"
    assert page.evaluate("document.cookie") == ""
    kept = context.cookies()[0]
    assert (kept["httpOnly"], kept["sameSite"], kept["expires"]) == (True, "Strict", -1)
    context.close()


RELATED = ASKED | {"related": "1"}


def test_contrast_is_asked_for_on_the_page_and_shown_as_explain_shows_it(tab, pocket):
    one = tab(f"?{urlencode(ASKED)}")
    page = one.page
    one.await_evidence()
    before = one.cells(LISTED, "effect")
    page.get_by_text("Why this subject, not this kind of sentence?").click()
    page.get_by_label("contrast with other facts of the relation").check()
    page.wait_for_url("**related=1**")
    page.wait_for_selector("#part-others p:nth-of-type(20)", state="attached")
    one.await_evidence()
    assert one.cells(LISTED, "effect") != before
    rows = fp.find_contrast_rows("pocket", JORDAN, " basketball")
    truth = fp.explain(pocket, JORDAN, " basketball", contrast=rows)
    assert one.cells(LISTED, "name") == truth.shown.name.tolist()
    page.locator("#part-numbers summary").click()
    assert one.cells("#part-numbers", "through") == truth.neurons.through.tolist()
    shown = [float(cell) for cell in one.cells(LISTED, "effect")]
    assert shown == pytest.approx(truth.neurons.effect.tolist(), rel=2e-3, abs=1e-5)
    page.locator("#part-paths summary").click()
    page.wait_for_selector("#part-paths .main-svg")
    page.locator("#part-others summary").click()
    assert page.locator("#part-others p").all_inner_texts() == [row.prompt for row in rows]
    page.wait_for_selector("#recipes:has-text('contrast=')")
    page.locator("#evidence a").first.click()
    page.wait_for_selector("#drivers")
    page.get_by_role("link", name="Back to the prompt").click()
    page.wait_for_selector("#part-others p:nth-of-type(20)", state="attached")


def test_contrast_prompts_are_typed_one_a_line_and_errors_in_them_said(tab):
    one = tab(f"?{urlencode(ASKED)}")
    page = one.page
    one.await_evidence()
    others = ["Tiger Woods plays the sport of", "Pete Sampras plays the sport of"]
    page.get_by_text("Why this subject, not this kind of sentence?").click()
    page.locator("#contrast").fill("\n".join(others))
    page.get_by_role("button", name="Run").click()
    page.wait_for_selector("#part-others p:nth-of-type(2):last-of-type", state="attached")
    one.await_evidence()
    page.locator("#part-others summary").click()
    assert page.locator("#part-others p").all_inner_texts() == others
    assert page.locator("#contrast").input_value() == "\n".join(others)
    page.locator("#contrast").fill(JORDAN)
    page.get_by_role("button", name="Run").click()
    page.wait_for_selector("[role=alert]")
    assert "no contrast prompt differs from the prompt." in one.text("[role=alert]")


def test_bos_is_a_switch_on_the_page(tab, pocket):
    one = tab(f"?{urlencode(ASKED)}")
    page = one.page
    page.wait_for_selector("#predictions td")
    switch = page.get_by_label("<|endoftext|> first")
    assert switch.is_checked()
    switch.uncheck()
    page.wait_for_url("**bos=0**")
    bare = fp.run(pocket, JORDAN, bos=False)
    page.wait_for_selector(f".prompt > :nth-child({len(bare)}):last-child")
    assert one.options()["answer"] == " basketball"
    switch.check()
    page.wait_for_selector(f".prompt > :nth-child({len(bare) + 1}):last-child")
    assert "bos" not in one.options(), "as usual is not said"


def test_a_click_on_a_head_sorts_and_new_rows_come_in_their_own_order(tab, pocket):
    one = tab(f"?{urlencode(ASKED)}")
    page = one.page
    one.await_evidence()
    own = one.cells(LISTED, "effect")
    head = page.locator(f"{LISTED} th", has_text="effect")
    head.locator("button").click()
    down = [float(cell) for cell in one.cells(LISTED, "effect")]
    assert down == sorted(down, reverse=True)
    assert len(set(down)) > 2
    assert head.get_attribute("aria-sort") == "descending"
    head.locator("button").click()
    assert [float(cell) for cell in one.cells(LISTED, "effect")] == sorted(down)
    page.locator("#predictions th", has_text="token").locator("button").click()
    names = one.cells("#predictions", "token")
    assert names == sorted(names)
    page.locator("#temperature").fill("2")
    page.wait_for_selector("#predictions output:text-is('temperature 2')")
    truth = fp.run(pocket, JORDAN).predictions(10, temperature=2.0)
    assert one.cells("#predictions", "token") == truth.token.tolist()
    assert page.locator("#predictions th:not([aria-sort=none])").count() == 0
    assert sorted(one.cells(LISTED, "effect")) == sorted(own)


@pytest.mark.parametrize("name", ["prompt", "neuron", "search", "facts", "contrast"])
def test_at_1400_pixels_no_column_is_clipped_and_no_modebar_is_over_a_title(tab, name):
    wanted = {"prompt": "#part-curve", "contrast": "#part-others", "search": "#survey table"}
    where = PAGES.get(name, f"?{urlencode(RELATED)}")
    one = tab(where, viewport={"width": 1400, "height": 900})
    page = one.page
    page.wait_for_selector(wanted.get(name, "table"))
    if name == "contrast":
        one.await_evidence()
    tables = page.evaluate(
        "[...document.querySelectorAll('.scroll')].map(e => [e.getAttribute('aria-label'), e.scrollWidth - e.clientWidth])"
    )
    assert tables
    assert [table for table in tables if table[1] > 0] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 1400
    assert page.locator(".modebar").count() == 0


def test_a_card_says_who_asked_at_each_token(tab, jordan):
    one = tab(f"neuron/L3N12?{urlencode(ASKED)}")
    page = one.page
    page.wait_for_selector("#drivers table")
    for position in (6, 2):
        page.locator(".prompt a.chip").nth(position).click()
        page.wait_for_selector(f".prompt a.chip:nth-child({position + 1})[aria-current]")
        truth = fp.drivers(jordan, "L3N12", position=position)
        page.wait_for_selector(f"#drivers p:has-text('{truth.title}')")
        parts = page.locator("#drivers table").first.locator("tbody td:first-child")
        assert parts.all_inner_texts() == truth.table.part[:10].tolist()
        names = page.locator("#drivers table").nth(1).locator("tbody a").all_inner_texts()
        assert names == truth.top(10).name.tolist()
    page.locator("#drivers table a").first.click()
    page.wait_for_url(f"**/neuron/{names[0]}**")


def test_a_page_says_busy_and_follows_when_there_is_room(tab):
    one = tab()
    page = one.page
    body = {"status": 503, "headers": {"Retry-After": "1"}, "body": "busy"}
    is_busy = threading.Event()
    is_busy.set()
    page.route(f"**{security.PATH}*", lambda route: route.fulfill(**body) if is_busy.is_set() else route.continue_())  # fmt: skip
    page.locator("#prompt").fill(JORDAN)
    page.locator("#prompt").press("Enter")
    page.wait_for_selector("#busy:has-text('The explorer is busy')", state="visible")
    assert page.locator("#predictions").count() == 0
    is_busy.clear()
    page.wait_for_selector("#predictions td")
    page.wait_for_selector("#busy", state="hidden")
    assert all("503" in said for said in one.said)
    one.said.clear()

"""Labels of somebody else's store may hold any text: no page takes it for markup.

Every page is made twice, with plain labels and with those that mean harm: its tags and attributes, or the
shape of its JSON, must be the same.
"""

import json
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt

import ffnprobe as fp
from ffnprobe.labels.stored_labels import open_labels, write_labels
from ffnprobe.store import Store
from ffnprobe.views.explorer.session import Session
from tests.explorer.client import Client
from tests.explorer.conftest import running

HARM = (
    "<script>window.harmed=1</script>", "</td></tr></table>", '"onmouseover="window.harmed=1',
    "'><img src=x onerror=window.harmed=1>", "</script><script>window.harmed=1", "<!--", "]]>",
    "\u202eabc\u202c \u2066d", "[x](javascript:window.harmed=1)", "| a | b", "`x` **b** <b>b</b>",
    "&lt;b&gt;", "{{7*7}} %{x}", "<a href='javascript:window.harmed=1'>x</a>", "x" * 100_000,
)  # fmt: skip
TEXTS = {str(n): f"the cat sat on mat {n} and the dog ran to the basketball" for n in range(24)}
NAME, PROMPT, ANSWER = "L1N7", "the cat sat on", " the"


class Shape(HTMLParser):
    """Note a page's tags with the names of their attributes, in order, and its text."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, *(name for name, _ in attrs)))

    def handle_endtag(self, tag):
        self.tags.append(("/", tag))

    def handle_comment(self, data):
        self.tags.append(("!",))

    def handle_data(self, data):
        self.text += data


def read_shape(known):
    """Blank the texts and numbers of JSON."""
    if isinstance(known, dict):
        return {name: read_shape(value) for name, value in known.items()}
    if isinstance(known, list):
        return [read_shape(value) for value in known]
    return type(known).__name__


@pytest.fixture(scope="module")
def stored(tiny, tmp_path_factory):
    """A scan with labels in its store."""
    folder = tmp_path_factory.mktemp("labels") / "scan"
    scan = fp.scan(tiny, TEXTS, store=folder, top=2, workers=1)
    fp.label(tiny, folder)
    return scan


@pytest.fixture(scope="module")
def write_pages(tiny, stored, tmp_path_factory):
    """Write every page and card that shows labels, with the given texts as labels."""
    labels = open_labels(stored)

    def write(*texts):
        columns = {
            name: [texts[n % len(texts)] for n in range(len(column))]
            if isinstance(column, list) and name != "name" else column
            for name, column in labels.columns.items()
        }  # fmt: skip
        write_labels(
            Store(stored.folder, stored.manifest), replace(labels, columns=columns), stored
        )
        scan, folder = fp.Scan.open(stored.folder), tmp_path_factory.mktemp("pages")
        results = {
            "labels": open_labels(scan),
            "survey": fp.survey(tiny, scan=scan),
            "explanation": fp.explain(tiny, PROMPT, ANSWER, scan=scan, top=4),
        }
        html, markdown = {}, {}
        for name, result in results.items():
            html[f"{name} card"] = result._repr_html_()
            fp.save(result, folder / f"{name}.html")
            html[f"{name} page"] = (folder / f"{name}.html").read_text(encoding="utf-8")
            fp.save(result, folder / f"{name}.md")
            markdown[name] = (folder / f"{name}.md").read_text(encoding="utf-8")
        index = fp.publish([*results.values()], folder / "site")
        html["index"] = index.read_text(encoding="utf-8")
        for page in sorted((folder / "site" / "results").glob("*.html")):
            html[f"site {page.name.rpartition('-')[0]}"] = page.read_text(encoding="utf-8")
        with running(Session(tiny, scan)) as address:
            client = Client(address)
            explorer = {
                "neuron": client.page(f"/neuron/{NAME}", ""),
                "search": client.page("/search", f"?token={ANSWER}"),
                "prompt": client.page("/", f"?prompt={PROMPT}&answer={ANSWER}"),
            }
        return html, markdown, explorer

    return write


@pytest.fixture(scope="module")
def plain(write_pages):
    return write_pages("plain")


def test_no_label_is_markup(write_pages, plain):
    html, markdown, explorer = write_pages(*HARM)
    for name, page in html.items():
        found, wanted = Shape(page), Shape(plain[0][name])
        assert found.tags == wanted.tags, name
    reader = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    for name, text in markdown.items():
        assert Shape(reader.render(text)).tags == Shape(reader.render(plain[1][name])).tags, name
    for name, page in explorer.items():
        assert read_shape(json.loads(page)) == read_shape(json.loads(plain[2][name])), name
    shown = Shape(html["labels page"]).text + Shape(html["survey page"]).text
    assert sum(harm in shown for harm in HARM) >= 5


TURNS = ("\u202e", "\u202c", "\u2066")


def test_no_label_turns_the_direction_of_writing(write_pages, plain):
    for found, wanted in zip(write_pages(*HARM), plain, strict=True):
        for name, page in found.items():
            for turn in (*TURNS, *(json.dumps(each)[1:-1] for each in TURNS)):
                assert page.count(turn) == wanted[name].count(turn), name
    html, _, explorer = write_pages("a\u202eb")
    assert "a⟨U+202E⟩b" in html["labels page"]
    assert "a⟨U+202E⟩b" in json.dumps(json.loads(explorer["neuron"]), ensure_ascii=False)

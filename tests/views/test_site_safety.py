"""A site's files when texts mean harm, and a site that somebody has changed."""

from dataclasses import replace
from html.parser import HTMLParser

import pytest
import yaml
from markdown_it import MarkdownIt

import ffnprobe as fp
from ffnprobe.results import TableSet

HARM = (
    "<script>window.harmed=1</script>", "a\nb | c", "a\r\n---\nconfigs: x", "`code` *b* _i_ ~~s~~",
    "[x](javascript:window.harmed=1)", "![x](https://example.org/x.png)", "https://example.org",
    "key: value", "# head", "a\u2028b\u202ec", "&lt;b&gt; \\| \\", "</h1><img src=x onerror=1>",
)  # fmt: skip


class Tags(HTMLParser):
    """Collect the tags of a page, and the text of its headings and cells."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts = set(), [""]
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag in ("h1", "td"):
            self.texts.append("")

    def handle_data(self, data):
        self.texts[-1] += data


@pytest.fixture(scope="module")
def golf(pocket):
    found = fp.search(pocket, " golf", top=3)
    return TableSet(found.title, found.tables(), found.provenance, "Search")


@pytest.mark.parametrize("text", HARM)
def test_the_card_of_a_site_shows_names_as_text(golf, text, tmp_path):
    known = replace(golf.provenance, model=text)
    fp.publish(TableSet(text, golf.named, known, "Search"), tmp_path / "site")
    card = (tmp_path / "site" / "README.md").read_text(encoding="utf-8")
    _, front, body = card.split("---\n", 2)
    (config,) = yaml.safe_load(front)["configs"]
    assert set(config) == {"config_name", "data_files"}
    assert (tmp_path / "site" / config["data_files"]).is_file()
    reader = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    shown = Tags(reader.render(body))
    assert shown.tags == {"h1", "p", "code", "table", "thead", "tbody", "tr", "th", "td"}
    said = " ".join(text.replace("\u202e", "⟨U+202E⟩").split())
    head, title = (" ".join(shown.texts[n].split()) for n in (1, 2))
    assert head.startswith(f"What ffnprobe found in {said} Weights")
    assert title == said

"""Cards in a notebook: small, without script, every token text."""

from html.parser import HTMLParser

import pytest

from ffnprobe.documents.blocks import ROWS, Table, Tokens, Words
from ffnprobe.documents.html import write_card


class Tags(HTMLParser):
    """Note every tag, its attributes, and what stands between them."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.names, self.text = set(), set(), ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.names |= {name for name, _ in attrs}

    def handle_data(self, data):
        self.text += data


KNOWN = {"div", "p", "br", "b", "i", "small", "span", "table", "thead", "tbody", "tr", "th", "td"}


@pytest.mark.parametrize("kind", ["results", "hostile_results"])
def test_every_card_is_plain_markup_without_script(kind, request):
    shown = 0
    for name, result in request.getfixturevalue(kind).items():
        html = result._repr_html_()
        page = Tags(html)
        assert page.tags <= KNOWN, name
        assert page.names <= {"class", "style", "title"}, name
        assert "tex2jax_ignore" in html
        assert len(html) < 100_000
        shown += 1
    assert shown >= 18


def test_a_trace_shows_its_tokens_and_what_comes_next(jordan):
    page = Tags(jordan._repr_html_())
    assert "<|endoftext|>Michael␣Jordan" in page.text
    assert "␣basketball" in page.text


def test_a_card_reads_on_light_and_on_dark(jordan):
    html = jordan._repr_html_()
    assert "color:inherit" in html
    assert "background:transparent" in html
    assert "#" not in html.replace("&#", "")  # no opaque colour


def test_tokens_are_coloured_by_sign_and_size():
    html = write_card("", [Tokens(["<b>", "y", "z"], [2.0, -1.0, 0.0])])
    assert "&lt;b&gt;" in html
    assert "rgba(0,114,178,0.650)" in html
    assert "rgba(213,94,0,0.325)" in html
    assert "0.000)" in html
    assert write_card("", [Tokens(["a"], [0.0])])


def test_a_long_table_says_how_much_is_left_out(results):
    survey = results["Survey"]
    html = write_card("<x>", [Table(survey.table), Words("<y>", "soft")])
    assert html.count("<tr>") == 1 + ROWS
    assert f"{len(survey) - ROWS} more rows" in html
    assert "&lt;x&gt;" in html
    assert "&lt;y&gt;" in html

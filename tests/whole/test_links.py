"""Links lead somewhere: every file is there, every anchor is a heading of its page."""

import re
from pathlib import Path

import pytest

from tests.whole.pages import PAGES, ROOT, prose

LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
FROM = [*PAGES, ROOT / "CHANGELOG.md", *sorted((ROOT / "notebooks").glob("*.ipynb"))]


def anchors(page: Path) -> set[str]:
    """Name the anchors of a page's headings, as both GitHub and MkDocs make them."""
    plain = (re.sub(r"[^\w\s-]", "", heading.lower()) for heading in HEADING.findall(prose(page)))
    return {re.sub(r"\s+", "-", heading.strip()) for heading in plain}


def broken(page: Path, text: str) -> list[str]:
    """List the links of a page that lead nowhere."""
    found = []
    for link in LINK.findall(text):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        is_there = target.exists() and target.is_relative_to(ROOT)
        if not is_there or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", FROM, ids=lambda page: page.name)
def test_links_resolve(page):
    assert broken(page, prose(page)) == []


def test_a_broken_link_is_noticed():
    text = "[a](docs/nowhere.md) [b](README.md#nowhere) [c](#glossary) [d](../x) [e](docs/lab.md)"
    assert broken(ROOT / "README.md", text) == ["docs/nowhere.md", "README.md#nowhere", "../x"]


def test_every_page_can_be_reached_from_the_readme():
    reached, new = set(), {ROOT / "README.md"}
    while new:
        page = new.pop()
        reached.add(page)
        for link in LINK.findall(prose(page)):
            target = (page.parent / link.partition("#")[0]).resolve()
            if target in PAGES and target not in reached:
                new.add(target)
    assert set(PAGES) <= reached

"""A site's files when texts mean harm, and a site that somebody has changed."""

import json
import random
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import yaml
from markdown_it import MarkdownIt

import ffnprobe as fp
from ffnprobe.errors import DataRefused, FileNotWritten
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


FLIPS = 60


def test_no_change_of_the_manifest_is_accepted(golf, tmp_path):
    site, other = tmp_path / "site", tmp_path / "other"
    fp.publish(golf, site)
    manifest = site / "site.json"
    whole, drawn = manifest.read_bytes(), random.Random(0)
    others = {path: path.read_bytes() for path in site.rglob("*") if path.is_file()}
    for _ in range(FLIPS):
        changed = bytearray(whole)
        changed[drawn.randrange(len(whole))] ^= 1 << drawn.randrange(8)
        manifest.write_bytes(changed)
        for results, target in ((golf, site), (site, other)):  # added to, and merged from
            # A change in the checksum itself leaves none.
            with pytest.raises(DataRefused, match=r"checksum does not fit|no checksum") as refusal:
                fp.publish(results, target)
            assert str(site / "results") in refusal.value.remedy
        assert manifest.read_bytes() == changed
    assert not other.exists()
    manifest.write_bytes(whole)
    fp.publish(golf, site)
    assert {path: path.read_bytes() for path in others} == others


def test_a_manifest_without_a_checksum_is_refused_by_name(golf, tmp_path):
    site = tmp_path / "site"
    fp.publish(golf, site)
    held = json.loads((site / "site.json").read_text(encoding="utf-8"))
    del held["checksum"]
    (site / "site.json").write_text(json.dumps(held), encoding="utf-8")
    with pytest.raises(DataRefused) as refusal:
        fp.publish(golf, site)
    assert refusal.value.what == (
        f"{site / 'site.json'} is damaged or of an earlier version: it has no checksum."
    )
    again = tmp_path / "again"
    fp.publish(sorted((site / "results").glob("*.json")), again)  # as the remedy says
    assert len(list((again / "results").iterdir())) == 4


def test_a_title_that_reads_as_an_empty_checksum_is_refused_before_anything_is_written(
    golf, tmp_path
):
    harm = TableSet(f"xxh3:{'0' * 32}", golf.named, golf.provenance, "Search")
    with pytest.raises(FileNotWritten, match="as an empty checksum does"):
        fp.publish(harm, tmp_path / "site")
    assert not (tmp_path / "site").exists()


@pytest.fixture
def outside(golf, tmp_path):
    """A folder elsewhere, with a result and a text that is nobody's business."""
    folder = tmp_path / "outside"
    folder.mkdir()
    fp.save(golf, folder / "golf.json")
    (folder / "secret.txt").write_text("a secret")
    return folder


def read_all(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


LINKS = {
    "results": lambda site, outside: ((site / "results"), outside),
    "a result": lambda site, outside: (
        next((site / "results").glob("*.json")), outside / "golf.json",
    ),
    "a page": lambda site, outside: (
        next((site / "results").glob("*.html")), outside / "secret.txt",
    ),
    "index": lambda site, outside: (site / "index.html", outside / "secret.txt"),
    "card": lambda site, outside: (site / "README.md", outside / "secret.txt"),
    "manifest": lambda site, outside: (site / "site.json", outside / "secret.txt"),
    "lock": lambda site, outside: (site / ".lock", outside / "secret.txt"),
    "dangling": lambda site, outside: (site / ".nojekyll", outside / "new.txt"),
}  # fmt: skip


@pytest.mark.parametrize("name", LINKS)
def test_nothing_is_written_or_read_through_a_link_in_a_site(name, golf, pocket, outside, tmp_path):
    site = tmp_path / "site"
    fp.publish(golf, site)
    link, leads_to = LINKS[name](site, outside)
    if link.is_dir():
        link.rename(tmp_path / "moved")
    else:
        link.unlink(missing_ok=True)
    link.symlink_to(leads_to)
    before = read_all(outside)
    for results, target in ((fp.read(pocket, "L0N1"), site), (site, tmp_path / "other")):
        with pytest.raises(DataRefused) as refusal:
            fp.publish(results, target)
        assert refusal.value.what == (
            f"{link} is a link; a published site holds files, so that nothing outside of it is "
            "read or overwritten."
        )
    assert read_all(outside) == before
    assert not (tmp_path / "other").exists()


def test_a_site_that_is_begun_is_checked_for_links_too(golf, outside, tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    (site / "results").symlink_to(outside)
    before = read_all(outside)
    with pytest.raises(DataRefused, match="results is a link"):
        fp.publish(golf, site)
    assert read_all(outside) == before


def test_a_link_to_the_whole_site_is_followed(golf, pocket, tmp_path):
    """Its name was typed: this is where the user wants the site to be."""
    fp.publish(golf, tmp_path / "site")
    (tmp_path / "link").symlink_to(tmp_path / "site")
    fp.publish(fp.read(pocket, "L0N1"), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert len(list((tmp_path / "site" / "results").glob("*.html"))) == 2

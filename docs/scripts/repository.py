"""A MkDocs hook: pages link to files of the repository, and the site has these files too.

The README is the site's first page. A link that works in the repository, from the root
(`docs/lab.md`) or from docs (`../analyses/toy_ffn.py`), works on the site; one that leads nowhere
fails the strict build.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
# Pages of the root that are pages of the site.
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
LINK = re.compile(r"(?<=\]\()(?P<up>\.\./)?(?P<path>[\w./-]+)")


def on_files(files: Files, *, config: Any) -> Files:
    """Add the root's pages, and every file of the repository that a page links to."""
    texts = {page.name: page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md")}
    texts |= {name: (ROOT / name).read_text(encoding="utf-8") for name in PAGES}
    linked = {
        found["path"]
        for name, text in texts.items()
        for found in LINK.finditer(text)
        if found["up"] or (name in PAGES and not found["path"].startswith("docs/"))
    }
    for path in sorted({*PAGES, *linked}):
        if (ROOT / path).is_file() and files.get_file_from_path(path) is None:
            files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Lead links of the repository to the site's own copies."""
    return LINK.sub(lambda found: found["path"].removeprefix("docs/"), markdown)

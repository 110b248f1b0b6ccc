"""One self-contained page: it works from disk and offline, and contains plotly.

Its content security policy allows only its own scripts (by hash) and loads nothing else.
"""

import base64
import hashlib
from html import escape
from importlib.resources import files

from plotly.offline import get_plotlyjs

# What pages and the widget share, and what only a page does.
SHARED = ("explorer/assets/tables.js", "report/live.js")
SCRIPTS = (*SHARED, "explorer/assets/tables_on_page.js", "report/script.js")


def wrap(title: str, body: str) -> str:
    """Write a page around its body."""
    style = read_asset("report/style.css")
    scripts = [get_plotlyjs(), *map(read_asset, SCRIPTS)]
    allowed = " ".join(f"'sha256-{_hash(script)}'" for script in scripts)
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"
    )
    has_figures = 'class="plot"' in body
    needed = "".join(f"<script>{script}</script>\n" for script in scripts[not has_figures :])
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style></head>\n"
        f"<body><h1>{escape(title)}</h1>\n{body}\n{needed}</body></html>\n"
    )


def read_asset(name: str) -> str:
    """Read a script or a style sheet of the package."""
    return files("ffnprobe.views").joinpath(name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()

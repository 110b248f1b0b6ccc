"""One self-contained page: it works from disk and offline, and contains plotly.

Its content security policy allows only its own two scripts (by hash) and loads nothing else.
"""

import base64
import hashlib
from html import escape
from importlib.resources import files

from plotly.offline import get_plotlyjs

from ffnprobe.evidence.explanation import Explanation
from ffnprobe.models.provenance import Provenance
from ffnprobe.reading.surveys import Survey
from ffnprobe.results import Result
from ffnprobe.views.files.formats import Tables
from ffnprobe.views.plots import plot_all
from ffnprobe.views.report.blocks import (
    definitions,
    figure_html,
    provenance_block,
    section,
    table_block,
)
from ffnprobe.views.report.explanations import explanation_sections
from ffnprobe.views.report.surveys import survey_sections
from ffnprobe.views.report.terms import MARKS, NEURONS, PROMPTS


def write_page(result: Result, tables: Tables, known: Provenance) -> str:
    """Write a result as a page: an explanation and a survey have pages of their own."""
    if isinstance(result, Explanation):
        title, parts = f"Why {result.title}?", explanation_sections(result)
    elif isinstance(result, Survey):
        title, parts = f"The neurons of {known.model}", survey_sections(result)
    else:
        title, parts = f"{result.title} ({known.model})", _plain_sections(result, tables)
    return _page(title, "".join([*parts, provenance_block(known)]))


def _plain_sections(result: Result, tables: Tables) -> list[str]:
    """Write the figures and tables of any other result."""
    figures = [figure_html(figure) for figure in plot_all(result)]
    parts = [section("Figures", *figures)] if figures else []
    for number, (name, table) in enumerate(tables.items()):
        parts.append(section(name, table_block(table, name=f"table-{number}")))
    return [*parts, section("What the words mean", definitions(MARKS | NEURONS | PROMPTS))]


def _page(title: str, body: str) -> str:
    folder = files("ffnprobe.views.report")
    style = folder.joinpath("style.css").read_text(encoding="utf-8")
    scripts = [get_plotlyjs(), folder.joinpath("script.js").read_text(encoding="utf-8")]
    allowed = " ".join(f"'sha256-{_hash(script)}'" for script in scripts)
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"
    )
    needs = "".join(f"<script>{script}</script>\n" for script in scripts)
    figures = needs if 'class="plot"' in body else f"<script>{scripts[1]}</script>"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style></head>\n"
        f"<body><h1>{escape(title)}</h1>\n{body}\n{figures}</body></html>\n"
    )


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()

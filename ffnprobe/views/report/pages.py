"""A result as a page: an explanation, a survey, or any other."""

from ffnprobe.evidence.explanation import Explanation
from ffnprobe.provenance import Provenance
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
from ffnprobe.views.report.reproduce import reproduce
from ffnprobe.views.report.shell import wrap
from ffnprobe.views.report.surveys import survey_sections
from ffnprobe.views.report.terms import MARKS, NEURONS, PROMPTS


def write_page(result: Result, tables: Tables, known: Provenance) -> str:
    """Write a result as a page."""
    title, body = write_body(result, tables, known)
    return wrap(title, body)


def write_body(result: Result, tables: Tables, known: Provenance) -> tuple[str, str]:
    """Write a page's title and body: an explanation and a survey have pages of their own."""
    if isinstance(result, Explanation):
        title, parts = f"Why {result.title}?", explanation_sections(result)
    elif isinstance(result, Survey):
        title, parts = f"The neurons of {known.model}", survey_sections(result)
    else:
        title, parts = f"{result.title} ({known.model})", _plain_sections(result, tables)
    return title, "".join([*parts, provenance_block(known)])


def _plain_sections(result: Result, tables: Tables) -> list[str]:
    """Write the figures and tables of any other result."""
    figures = [figure_html(figure) for figure in plot_all(result)]
    parts = [section("Figures", *figures)] if figures else []
    for number, (name, table) in enumerate(tables.items()):
        parts.append(section(name, table_block(table, name=f"table-{number}")))
    words = section("What the words mean", definitions(MARKS | NEURONS | PROMPTS))
    return [*parts, words, *reproduce(result)]

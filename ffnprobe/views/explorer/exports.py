"""What a page exports: files, an HTML report, and the command and the Python that give the same."""

from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from dash import dcc, html

from ffnprobe.provenance import Provenance
from ffnprobe.recipes import Recipe
from ffnprobe.results import Result, TableSet, as_result
from ffnprobe.views.explorer.blocks import Component
from ffnprobe.views.files.saving import encode_result


@dataclass(frozen=True)
class Live:
    """What the page shows but its address does not hold: sliders, and a running job."""

    sliders: dict[str, Any] = field(default_factory=dict)
    job: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Export:
    """What a page exports: a result, its tables by name, and how to get it again."""

    stem: str
    result: Result
    tables: dict[str, pd.DataFrame]
    recipe: Recipe


def bar() -> Component:
    """Offer the files and the recipes; the list of tables is filled in once the page is shown."""
    buttons = [
        html.Button(title, id=f"save-{name}", n_clicks=0)
        for name, title in (("csv", "csv"), ("parquet", "parquet"), ("report", "HTML report"))
    ]
    chosen = dcc.RadioItems(options=[], value=None, id="save-table", inline=True, className="radio")
    return html.Section(
        [
            html.H2("Export"),
            html.Fieldset([html.Legend("Table for csv and parquet"), chosen]),
            html.Div(buttons, className="row"),
            html.Div(id="saved", role="status"),
            html.Div(id="recipes"),
        ]
    )


def provenance_of(table: pd.DataFrame) -> Provenance:
    """Return the provenance of a table."""
    return as_result(table).provenance


def write(export: Export, suffix: str, chosen: str | None) -> bytes:
    """Write an export as a file: the chosen table, or for .html all of it."""
    if suffix == ".html":
        # An explanation and a survey have their own report; others list every table.
        own = export.stem in ("explanation", "survey")
        tables = export.result.tables() if own else export.tables
        return encode_result(export.result, suffix, tables=tables)
    name = chosen if chosen in export.tables else next(iter(export.tables))
    table = export.tables[name]
    return encode_result(TableSet(name, {name: table}, provenance_of(table)), suffix)

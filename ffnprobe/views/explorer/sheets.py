"""What a page shows, to be taken along: as a file, as a page, as the command and the Python that give the same."""

from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from dash import dcc, html

from ffnprobe.models.provenance import Provenance
from ffnprobe.results import Result, TableSet, as_result
from ffnprobe.views.explorer.blocks import Component
from ffnprobe.views.files.saving import encode_result
from ffnprobe.views.recipes import Recipe


@dataclass(frozen=True)
class Live:
    """What is on the screen but not in the address: the sliders, and the work that is going on."""

    sliders: dict[str, Any] = field(default_factory=dict)
    job: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Sheet:
    """What a page shows, to be taken along: a result, its tables by name, and how to get it again."""

    stem: str
    result: Result
    tables: dict[str, pd.DataFrame]
    recipe: Recipe


def bar() -> Component:
    """Offer the files and the recipes; which tables there are is told when the page is there."""
    buttons = [
        html.Button(title, id=f"save-{name}", n_clicks=0)
        for name, title in (("csv", "csv"), ("parquet", "parquet"), ("report", "HTML report"))
    ]
    chosen = dcc.RadioItems(options=[], value=None, id="save-table", inline=True, className="radio")
    return html.Section(
        [
            html.H2("Take it along"),
            html.Fieldset([html.Legend("Table for csv and parquet"), chosen]),
            html.Div(buttons, className="row"),
            html.Div(id="saved", role="status"),
            html.Div(id="recipes"),
        ]
    )


def provenance_of(table: pd.DataFrame) -> Provenance:
    """Return where a table's numbers come from."""
    return as_result(table).provenance


def write(sheet: Sheet, suffix: str, chosen: str | None) -> bytes:
    """Write a sheet as a file: of a table's format the table chosen, of a page everything."""
    if suffix == ".html":
        # An explanation and a survey have pages of their own; of others the page holds every table.
        own = sheet.stem in ("explanation", "survey")
        tables = sheet.result.tables() if own else sheet.tables
        return encode_result(sheet.result, suffix, tables=tables)
    name = chosen if chosen in sheet.tables else next(iter(sheet.tables))
    table = sheet.tables[name]
    return encode_result(TableSet(name, {name: table}, provenance_of(table)), suffix)

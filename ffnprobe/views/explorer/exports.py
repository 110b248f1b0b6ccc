"""What a page exports: files, an HTML report, and the command and the Python that give the same."""

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pandas as pd
from dash import Dash, Input, Output, State, ctx, dcc, html, no_update

from ffnprobe.errors import FfnProbeError
from ffnprobe.recipes import Recipe
from ffnprobe.results import Result, TableSet, as_result
from ffnprobe.views.explorer.addresses import Address, read_address
from ffnprobe.views.explorer.components import PLACE, Component, alert, section
from ffnprobe.views.saving import encode_result

Settings = dict[str, Any] | None
# Each button: its title, the suffix of its file, and the type a browser knows it by.
BUTTONS = {
    "save-csv": ("csv", ".csv", "text/csv"),
    "save-parquet": ("parquet", ".parquet", "application/vnd.apache.parquet"),
    "save-report": ("HTML report", ".html", "text/html"),
}


@dataclass(frozen=True)
class Live:
    """What the page shows but its address does not hold: sliders, and a running job."""

    sliders: dict[str, Any] = field(default_factory=dict)
    job: dict[str, Any] = field(default_factory=dict)


class Export(NamedTuple):
    stem: str
    result: Result
    tables: dict[str, pd.DataFrame]
    recipe: Recipe


def bar() -> Component:
    """Offer the files and the recipes; the list of tables is filled in once the page is shown."""
    buttons = [html.Button(title, id=name, n_clicks=0) for name, (title, _, _) in BUTTONS.items()]
    chosen = dcc.RadioItems(options=[], value=None, id="save-table", inline=True, className="radio")
    tables = html.Fieldset([html.Legend("Table for csv and parquet"), chosen])
    saved, recipes = html.Div(id="saved", role="status"), html.Div(id="recipes")
    return section("Export", tables, html.Div(buttons, className="row"), saved, recipes)


def _show_recipes(recipe: Recipe) -> list[Component]:
    shown = []
    for name, text in (("command", recipe.command), ("Python", recipe.python)):
        if text:
            code = html.Pre(html.Code(text), tabIndex="0")
            copy = html.Button("copy", className="copy", **{"aria-label": f"copy the {name}"})
            shown.append(html.Div([html.H3(name), code, copy], className="recipe"))
    return shown


def write(export: Export, suffix: str, chosen: str | None) -> bytes:
    """Write an export as a file: the chosen table, or for .html all of it."""
    if suffix == ".html":
        # An explanation and a survey have their own report; others list every table.
        is_own_host = export.stem in ("explanation", "survey")
        return encode_result(export.result, suffix, tables=None if is_own_host else export.tables)
    name = chosen if chosen in export.tables else next(iter(export.tables))
    table = export.tables[name]
    return encode_result(TableSet(name, {name: table}, as_result(table).provenance), suffix)


def register(app: Dash, gather: Callable[[Address, Live], Export]) -> None:
    """Register the buttons, and the list of tables and the recipes, which follow the sliders."""

    def read(path: str, search: str, live: Settings, job: Settings) -> Export:
        return gather(read_address(path, search), Live(live or {}, job or {}))

    def list_tables(
        live: Settings, job: Settings, _: object, chosen: str | None, path: str, search: str
    ) -> Any:
        try:
            export = read(path, search, live, job)
        except FfnProbeError:
            return [], None, []
        names = list(export.tables)
        # A late reply must not undo a choice made meanwhile.
        return names, no_update if chosen in names else names[0], _show_recipes(export.recipe)

    app.callback(
        Output("save-table", "options"), Output("save-table", "value"), Output("recipes", "children"),
        Input("live", "data"), Input("job", "data"), Input("saved", "id"),
        State("save-table", "value"), *PLACE,
    )(list_tables)  # fmt: skip

    def save(_csv: int, _parquet: int, _report: int, chosen: str | None, live: Settings, job: Settings,
             path: str, search: str) -> Any:  # fmt: skip
        if ctx.triggered_id not in BUTTONS or not ctx.triggered[0]["value"]:
            return no_update, no_update
        _, suffix, kind = BUTTONS[ctx.triggered_id]
        try:
            export = read(path, search, live, job)
            data = write(export, suffix, chosen)
        except FfnProbeError as error:
            return no_update, alert(error)
        stem = export.stem if suffix == ".html" or not chosen else f"{export.stem}-{chosen}"
        file = re.sub(r"[^\w.-]+", "-", stem) + suffix
        content = {"filename": file, "content": base64.b64encode(data).decode(), "base64": True, "type": kind}  # fmt: skip
        return content, f"saved {file}"

    app.callback(
        Output("download", "data"), Output("saved", "children"),
        *(Input(name, "n_clicks") for name in BUTTONS),
        State("save-table", "value"), State("live", "data"), State("job", "data"), *PLACE,
        prevent_initial_call=True,
    )(save)  # fmt: skip

"""Answer the buttons that take a page along, and keep its recipes true to its sliders."""

import base64
import re
from collections.abc import Callable
from typing import Any

from dash import Dash, Input, Output, State, ctx, no_update

from ffnprobe.errors import FfnProbeError
from ffnprobe.views.explorer import facts, neuron, prompt, search
from ffnprobe.views.explorer.blocks import alert, recipes
from ffnprobe.views.explorer.desk import Desk
from ffnprobe.views.explorer.places import Place, read_place
from ffnprobe.views.explorer.sheets import Live, Sheet, write

SUFFIXES = {"csv": ".csv", "parquet": ".parquet", "report": ".html"}
TYPES = {".csv": "text/csv", ".parquet": "application/vnd.apache.parquet", ".html": "text/html"}
GATHER: dict[str, Callable[[Desk, Place, Live], Sheet]] = {
    "/": prompt.gather,
    "/search": search.gather,
    "/facts": facts.gather,
}


def gather(desk: Desk, place: Place, live: Live) -> Sheet:
    """Gather what a place shows."""
    if place.neuron:
        return neuron.gather(desk, place, live)
    if place.path not in GATHER:
        raise FfnProbeError("there is nothing on this page to take along.")
    return GATHER[place.path](desk, place, live)


def register(app: Dash, desk: Desk) -> None:
    """Answer the buttons, and keep the recipes true to the sliders."""

    def read(path: str, search_text: str, live: object, job: object) -> Sheet:
        said, running = (part if isinstance(part, dict) else {} for part in (live, job))
        return gather(desk, read_place(path, search_text), Live(said, running))

    def list_tables(
        live: object, job: object, _: object, chosen: str | None, path: str, search_text: str
    ) -> Any:
        try:
            sheet = read(path, search_text, live, job)
        except FfnProbeError:
            return [], None, []
        names = list(sheet.tables)
        # A choice just made must not be taken back by a reply that did not know of it.
        value = no_update if chosen in names else names[0]
        return names, value, recipes(sheet.recipe)

    app.callback(
        Output("save-table", "options"), Output("save-table", "value"), Output("recipes", "children"),
        Input("live", "data"), Input("job", "data"), Input("saved", "id"),
        State("save-table", "value"), State("place", "pathname"), State("place", "search"),
    )(list_tables)  # fmt: skip

    def save(_csv: int, _parquet: int, _report: int, chosen: str | None, live: object, job: object,
             path: str, search_text: str) -> Any:  # fmt: skip
        name = str(ctx.triggered_id or "").removeprefix("save-")
        if name not in SUFFIXES or not ctx.triggered[0]["value"]:
            return no_update, no_update
        suffix = SUFFIXES[name]
        try:
            sheet = read(path, search_text, live, job)
            data = write(sheet, suffix, chosen)
        except FfnProbeError as error:
            return no_update, alert(error)
        stem = sheet.stem if suffix == ".html" or not chosen else f"{sheet.stem}-{chosen}"
        file = re.sub(r"[^\w.-]+", "-", stem) + suffix
        content = {"filename": file, "content": base64.b64encode(data).decode(), "base64": True, "type": TYPES[suffix]}  # fmt: skip
        return content, f"saved {file}"

    app.callback(
        Output("download", "data"), Output("saved", "children"),
        Input("save-csv", "n_clicks"), Input("save-parquet", "n_clicks"), Input("save-report", "n_clicks"),
        State("save-table", "value"), State("live", "data"), State("job", "data"),
        State("place", "pathname"), State("place", "search"), prevent_initial_call=True,
    )(save)  # fmt: skip

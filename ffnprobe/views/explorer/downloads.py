"""The download buttons at the end of each page, and the recipes that follow its sliders."""

import base64
import re
from collections.abc import Callable
from typing import Any

from dash import Dash, Input, Output, State, ctx, no_update

from ffnprobe.errors import FfnProbeError
from ffnprobe.views.explorer import circuit, facts, neuron, prompt, search
from ffnprobe.views.explorer.addresses import Address, read_address
from ffnprobe.views.explorer.blocks import alert, recipes
from ffnprobe.views.explorer.exports import Export, Live, write
from ffnprobe.views.explorer.session import Session

Settings = dict[str, Any] | None
SUFFIXES = {"csv": ".csv", "parquet": ".parquet", "report": ".html"}
TYPES = {".csv": "text/csv", ".parquet": "application/vnd.apache.parquet", ".html": "text/html"}
GATHER: dict[str, Callable[[Session, Address, Live], Export]] = {
    "/": prompt.gather,
    "/circuit": circuit.gather,
    "/search": search.gather,
    "/facts": facts.gather,
}


def gather(session: Session, address: Address, live: Live) -> Export:
    """Gather what an address shows."""
    if address.neuron:
        return neuron.gather(session, address, live)
    if address.path not in GATHER:
        raise FfnProbeError("there is nothing on this page to export.")
    return GATHER[address.path](session, address, live)


def register(app: Dash, session: Session) -> None:
    """Register the buttons and the recipes."""

    def read(path: str, search_text: str, live: Settings, job: Settings) -> Export:
        return gather(session, read_address(path, search_text), Live(live or {}, job or {}))

    def list_tables(
        live: Settings, job: Settings, _: object, chosen: str | None, path: str, search_text: str
    ) -> Any:
        try:
            export = read(path, search_text, live, job)
        except FfnProbeError:
            return [], None, []
        names = list(export.tables)
        # A late reply must not undo a choice made meanwhile.
        value = no_update if chosen in names else names[0]
        return names, value, recipes(export.recipe)

    app.callback(
        Output("save-table", "options"), Output("save-table", "value"), Output("recipes", "children"),
        Input("live", "data"), Input("job", "data"), Input("saved", "id"),
        State("save-table", "value"), State("location", "pathname"), State("location", "search"),
    )(list_tables)  # fmt: skip

    def save(_csv: int, _parquet: int, _report: int, chosen: str | None, live: Settings, job: Settings,
             path: str, search_text: str) -> Any:  # fmt: skip
        name = str(ctx.triggered_id or "").removeprefix("save-")
        if name not in SUFFIXES or not ctx.triggered[0]["value"]:
            return no_update, no_update
        suffix = SUFFIXES[name]
        try:
            export = read(path, search_text, live, job)
            data = write(export, suffix, chosen)
        except FfnProbeError as error:
            return no_update, alert(error)
        stem = export.stem if suffix == ".html" or not chosen else f"{export.stem}-{chosen}"
        file = re.sub(r"[^\w.-]+", "-", stem) + suffix
        content = {"filename": file, "content": base64.b64encode(data).decode(), "base64": True, "type": TYPES[suffix]}  # fmt: skip
        return content, f"saved {file}"

    app.callback(
        Output("download", "data"), Output("saved", "children"),
        Input("save-csv", "n_clicks"), Input("save-parquet", "n_clicks"), Input("save-report", "n_clicks"),
        State("save-table", "value"), State("live", "data"), State("job", "data"),
        State("location", "pathname"), State("location", "search"), prevent_initial_call=True,
    )(save)  # fmt: skip

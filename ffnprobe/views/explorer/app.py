"""The app: one frame and five pages, chosen by the address."""

from collections.abc import Callable
from importlib.resources import files
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, html
from flask import abort

from ffnprobe.errors import FfnProbeError
from ffnprobe.views.explorer import (
    circuit,
    downloads,
    evidence,
    facts,
    frame,
    neuron,
    prompt,
    search,
)
from ffnprobe.views.explorer.addresses import Address, read_address
from ffnprobe.views.explorer.blocks import Component, Viewport, alert, link, read_viewport
from ffnprobe.views.explorer.callbacks import check_callbacks
from ffnprobe.views.explorer.jobs import log_error
from ffnprobe.views.explorer.security import guard, say
from ffnprobe.views.explorer.session import Session

Show = Callable[[Session, Address, Viewport], Component]
PAGES: dict[str, Show] = {
    "/": prompt.show,
    "/neuron": neuron.show_none,
    "/circuit": circuit.show,
    "/search": search.show,
    "/facts": facts.show,
}


def build(session: Session, *, host: str = "127.0.0.1", token: str | None = None) -> Dash:
    """Build the app around a session; it loads nothing from other servers."""
    app = Dash(
        "ffnprobe.views.explorer",
        assets_folder=str(files("ffnprobe.views.explorer").joinpath("assets")),
        title="ffnprobe", update_title=None, serve_locally=True, use_pages=False,
        suppress_callback_exceptions=True, add_log_handler=False, enable_mcp=False,
        meta_tags=[{"name": "viewport", "content": "width=device-width, initial-scale=1"}],
        index_string=frame.INDEX, on_error=_note,
    )  # fmt: skip
    app.layout = frame.frame(session)

    def show(path: str | None, search_text: str | None, screen: object) -> tuple[Component, ...]:
        address = read_address(path, search_text)
        return show_page(session, address, read_viewport(screen)), frame.navigation(address), {}

    app.callback(
        Output("page", "children"), Output("navigation", "children"), Output("live", "data"),
        Input("location", "pathname"), Input("location", "search"), Input("screen", "data"),
    )(show)  # fmt: skip
    for name, output, trigger in (
        ("watchScreen", Output("screen", "data"), Input("location", "id")),
        ("writeAddress", Output("address", "data"), Input("live", "data")),
        ("openCell", Output("cell", "data"), Input("lens", "clickData")),
        ("openNode", Output("node", "data"), Input("graph", "clickData")),
        ("openNeuron", Output("point", "data"), Input("kinds", "clickData")),
        ("nameWindow", Output("window", "data"), Input("page", "children")),
    ):
        app.clientside_callback(ClientsideFunction("explorer", name), output, trigger)
    for room in (prompt, evidence, neuron, search, downloads):
        room.register(app, session)
    guard(app, host=host, token=token)
    check_callbacks(app)
    return app


def show_page(session: Session, address: Address, viewport: Viewport) -> Component:
    """Show the page of an address, or the error in the address."""
    show = neuron.show if address.neuron else PAGES.get(address.path)
    if show is None:
        return html.Div(
            [html.H1("No such page"), html.P(["Start with ", link("a prompt", "/"), "."])]
        )
    try:
        return show(session, address, viewport)
    except FfnProbeError as error:
        return html.Div([html.H1("This cannot be shown"), alert(error)])


def _note(error: Exception) -> Any:
    """Refuse what a page would not ask for; log an unexpected error instead of showing it."""
    if isinstance(error, FfnProbeError):
        abort(say(str(error), 400))
    log_error()
    return None

"""The app: one frame, four pages in it, and which one an address shows."""

from collections.abc import Callable
from importlib.resources import files
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, html

from ffnprobe.errors import FfnProbeError
from ffnprobe.views.explorer import evidence, exports, facts, frame, neuron, prompt, search
from ffnprobe.views.explorer.blocks import Component, Look, alert, link, read_look
from ffnprobe.views.explorer.desk import Desk
from ffnprobe.views.explorer.jobs import log_error
from ffnprobe.views.explorer.places import Place, read_place
from ffnprobe.views.explorer.security import guard

Show = Callable[[Desk, Place, Look], Component]
PAGES: dict[str, Show] = {
    "/": prompt.show,
    "/neuron": neuron.show_none,
    "/search": search.show,
    "/facts": facts.show,
}


def build(desk: Desk, *, host: str = "127.0.0.1") -> Dash:
    """Make the app around a desk; nothing in it is fetched from anywhere else."""
    app = Dash(
        "ffnprobe.views.explorer",
        assets_folder=str(files("ffnprobe.views.explorer").joinpath("assets")),
        title="ffnprobe", update_title=None, serve_locally=True, use_pages=False,
        suppress_callback_exceptions=True, add_log_handler=False, enable_mcp=False,
        meta_tags=[{"name": "viewport", "content": "width=device-width, initial-scale=1"}],
        index_string=frame.INDEX, on_error=_note,
    )  # fmt: skip
    app.layout = frame.frame(desk)

    def show(path: str | None, search_text: str | None, screen: object) -> tuple[Component, ...]:
        place = read_place(path, search_text)
        return show_page(desk, place, read_look(screen)), frame.navigation(place), {}

    app.callback(
        Output("page", "children"), Output("navigation", "children"), Output("live", "data"),
        Input("place", "pathname"), Input("place", "search"), Input("screen", "data"),
    )(show)  # fmt: skip
    for name, output, trigger in (
        ("watchScreen", Output("screen", "data"), Input("place", "id")),
        ("writeAddress", Output("address", "data"), Input("live", "data")),
        ("openCell", Output("cell", "data"), Input("lens", "clickData")),
        ("openNeuron", Output("point", "data"), Input("kinds", "clickData")),
        ("nameWindow", Output("window", "data"), Input("page", "children")),
    ):
        app.clientside_callback(ClientsideFunction("explorer", name), output, trigger)
    for room in (prompt, evidence, neuron, search, exports):
        room.register(app, desk)
    guard(app, host=host)
    return app


def show_page(desk: Desk, place: Place, look: Look) -> Component:
    """Show a place's page; what is wrong with the place is said on it."""
    show = neuron.show if place.neuron else PAGES.get(place.path)
    if show is None:
        return html.Div(
            [html.H1("No such page"), html.P(["Begin with ", link("a prompt", "/"), "."])]
        )
    try:
        return show(desk, place, look)
    except FfnProbeError as error:
        return html.Div([html.H1("This cannot be shown"), alert(error)])


def _note(error: Exception) -> Any:
    """Keep an unforeseen error from the page, where it would say nothing to its reader."""
    log_error()
    return None

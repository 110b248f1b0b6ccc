"""What if a neuron had another activation: the sliders, the predictions and the texts they change."""

import math

from dash import Dash, Input, Output, State, dcc, html, no_update

from ffnprobe.corpora.contexts import join
from ffnprobe.errors import FfnProbeError
from ffnprobe.views.explorer.addresses import Address, read_address
from ffnprobe.views.explorer.blocks import (
    Component,
    Viewport,
    alert,
    field,
    figure,
    is_untouched,
    read_viewport,
    section,
    table,
    words,
)
from ffnprobe.views.explorer.session import MOST_WRITTEN, Session
from ffnprobe.views.plots import plot

WRITTEN = 20


def panel(
    session: Session, address: Address, name: str, activations: list[float], viewport: Viewport
) -> Component:
    """Show the sliders, set as the address says."""
    low = min(-2.0, math.floor(min(activations)))
    high = max(8.0, math.ceil(2 * max(activations)))
    value = address.number("set", round(activations[-1], 2))
    slider = dcc.Input(id="set", type="range", min=low, max=high, step=0.05, value=value)
    many = dcc.Input(id="many", type="range", min=1, max=MOST_WRITTEN, step=1, value=WRITTEN)
    said = f"Set the activation of {name} at every token and see what the model predicts. Its own activation at the last token is {activations[-1]:.3f}."
    changed = _steered(session, address, name, value, viewport) if address.has("set") else []
    return section(
        "What if",
        words(said),
        dcc.Store(id="first", data=value),
        field("Activation", slider, hint=f"from {low:g} to {high:g}"),
        html.Div(changed, id="steered", **{"aria-live": "polite"}),
        html.Div([field("Tokens to generate", many), html.Button("Generate both texts", id="write", n_clicks=0)], className="row"),
        html.Div(id="texts", **{"aria-live": "polite"}),
    )  # fmt: skip


def _steered(
    session: Session, address: Address, name: str, value: float, viewport: Viewport
) -> list[Component]:
    try:
        steering = session.steering(address, name, value)
    except FfnProbeError as error:
        return [alert(error)]
    k = min(8, len(session.model.vocab))
    found = steering.predictions(k).drop(columns="id")
    return [
        html.P(html.Output(f"{name} = {value:g}")),
        table(found, caption=f"before and after {name} = {value:g}"),
        figure(plot(steering, top=k), viewport),
    ]


def _write(session: Session, address: Address, name: str, value: float, many: int) -> Component:
    try:
        steering = session.steering(address, name, value, generate=many)
    except FfnProbeError as error:
        return alert(error)
    show = steering.trace.model.vocab.show_all
    texts = {"as it is": steering.continued_before, f"{name} = {value:g}": steering.continued_after}
    return html.Dl(
        [
            part
            for title, ids in texts.items()
            for part in (html.Dt(title), html.Dd(join(tuple(show(ids)))))
        ]
    )


def register(app: Dash, session: Session) -> None:
    """Register the sliders and the button."""

    def change(
        moved: float | str | None, first: float, live: object, path: str, search: str, screen: object
    ) -> tuple[object, object]:  # fmt: skip
        if moved is None or is_untouched(value := float(moved), first, live):
            return no_update, no_update
        address = read_address(path, search)
        panel = _steered(session, address, address.neuron, value, read_viewport(screen))
        return panel, {"set": value}

    app.callback(
        Output("steered", "children"), Output("live", "data", allow_duplicate=True),
        Input("set", "value"), State("first", "data"), State("live", "data"),
        State("location", "pathname"), State("location", "search"), State("screen", "data"),
        prevent_initial_call=True,
    )(change)  # fmt: skip

    def write(
        clicks: int, moved: float | str | None, many: float | str | None, path: str, search: str
    ) -> tuple[object, object]:
        if not clicks or moved is None or many is None:
            return no_update, no_update
        address, value, length = read_address(path, search), float(moved), int(float(many))
        texts = _write(session, address, address.neuron, value, length)
        return texts, {"set": value, "generate": length}

    app.callback(
        Output("texts", "children"), Output("live", "data", allow_duplicate=True),
        Input("write", "n_clicks"), State("set", "value"), State("many", "value"),
        State("location", "pathname"), State("location", "search"), prevent_initial_call=True,
    )(write)  # fmt: skip

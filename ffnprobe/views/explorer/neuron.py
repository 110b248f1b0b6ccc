"""The page of a neuron: its card, its relatives, its examples, what it does on the prompt, and what if."""

import math

from dash import Dash, Input, Output, State, dcc, html, no_update

from ffnprobe.corpora.examples import Examples, join
from ffnprobe.errors import FfnProbeError
from ffnprobe.layout import escape_bidi
from ffnprobe.reading.readings import TITLES, Reading, Readings, describe
from ffnprobe.recipes import spell_token, write_recipe
from ffnprobe.results import Result
from ffnprobe.tracing.drivers import Drivers
from ffnprobe.views.explorer import forms
from ffnprobe.views.explorer.addresses import Address, read_address
from ffnprobe.views.explorer.components import (
    Component,
    Viewport,
    alert,
    chips,
    field,
    figure,
    is_untouched,
    link,
    neuron_link,
    read_viewport,
    section,
    show_blocks,
    table,
    words,
)
from ffnprobe.views.explorer.exports import Export, Live, bar
from ffnprobe.views.explorer.session import EXAMPLES, MOST_WRITTEN, Session
from ffnprobe.views.figures import plot

# MERGED: ffnprobe.views.explorer.whatif
# What if a neuron had another activation: the sliders, the predictions and the texts they change.


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


def register_whatif(app: Dash, session: Session) -> None:
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


TOKENS = 10
DRIVERS = 10


def show_none(session: Session, address: Address, viewport: Viewport) -> Component:
    """Ask for a neuron."""
    c = session.model.config
    about = f"{session.model.name} has {c.layers} layers of {c.d_mlp:,} neurons: L0N0 to L{c.layers - 1}N{c.d_mlp - 1}."
    return html.Div([html.H1("Which neuron?"), words(about), _chooser(address)])


def _chooser(address: Address) -> Component:
    box = dcc.Input(id="name", value=address.neuron, placeholder="L3N12", spellCheck=False)  # fmt: skip
    button = html.Button("Show", id="go")
    return html.Div([field("Neuron", box), button], className="row", role="search")


def show(session: Session, address: Address, viewport: Viewport) -> Component:
    """Show a neuron."""
    try:
        reading = session.reading(address.neuron)
    except FfnProbeError as error:
        return html.Div([html.H1("Which neuron?"), _chooser(address), alert(error)])
    return html.Div(
        [
            html.H1([reading.name, " ", html.Span(reading.kind, className="kind")]),
            _chooser(address),
            _card(session, reading, address),
            *_on_prompt(session, address, reading, viewport),
            *_examples(session.examples(reading.name), address, viewport),
            section(
                "Related neurons",
                *show_blocks(session.related(reading).document(), address, viewport),
            ),
            bar(),
        ]
    )


def _card(session: Session, reading: Reading, address: Address) -> Component:
    model = reading.question.model
    listed = Readings(model, (reading,), reading.provenance).tokens(min(TOKENS, len(model.vocab)))
    lists = []
    for side, part in listed.groupby("list", sort=False):
        tokens = [
            _token(address, model.vocab.show(token), spell_token(model, token))
            for token in part.id.tolist()
        ]
        whole = table(part[["token", "value"]], caption=TITLES[str(side)], links={"token": tokens})
        lists.append(html.Div([html.H3(TITLES[str(side)]), whole]))
    numbers = [html.P(line, className="soft") for line in describe(reading)]
    known = None if session.labels is None else session.labels.of(reading.name)
    labelled = (
        [] if known is None else [html.P(escape_bidi(f"Label: {known.describe()}"), id="label")]
    )
    return section("Question and answer", *labelled, html.Div(lists, className="lists"), *numbers)


def _token(address: Address, shown: str, token: str | int) -> Component:
    """Link a token to the neurons that promote it, if it can be typed."""
    return shown if isinstance(token, int) else link(shown, address.to("/search", token=token))


def _examples(found: Examples | None, address: Address, viewport: Viewport) -> list[Component]:
    if found is None:
        return []
    about = words(f"{found.title}; {found.provenance.describe()}.", is_soft=True)
    return [section("Examples", about, *show_blocks(found.quote(EXAMPLES), address, viewport))]


def _on_prompt(
    session: Session, address: Address, reading: Reading, viewport: Viewport
) -> list[Component]:
    if not address.text("prompt"):
        return [section("On a prompt", forms.prompt_form(session, address, None, has_answer=False))]
    try:
        trace = session.trace(address)
        found = trace.neuron(reading.name, address.token("answer"))
        position = trace.at(int(address.number("position", -1)))
    except FfnProbeError as error:
        return [section("On a prompt", forms.prompt_form(session, address, None, has_answer=False), alert(error))]  # fmt: skip
    activations = found.activation.tolist()
    return [
        section(
            "On the prompt",
            forms.prompt_form(session, address, trace, has_answer=False),
            chips(
                trace.tokens, activations, current=position,
                hrefs=[address.here(position=order) for order in range(len(trace))],
            ),
            words("Colour: the activation at a token (blue above zero). Click a token to see who asked there.", is_soft=True),
            table(found, caption=f"{reading.name} at every token: its activation, and its push toward a token: direct, and through attention, in logits"),
            html.P(link("Back to the prompt and its evidence", address.to("/"))),
        ),
        _drivers(session.drivers(trace, reading.name, position), address),
        panel(session, address, reading.name, activations, viewport),
    ]  # fmt: skip


def _drivers(found: Drivers, address: Address) -> Component:
    """Show what gave the neuron its score: parts of the stream, and earlier neurons one by one."""
    parts = found.table.drop(columns=["kind", "layer", "head"])
    tables = [table(parts, caption="parts of the stream, the strongest first", most=DRIVERS)]
    if earlier := found.account.neurons.numel():
        listed = found.top(min(DRIVERS, earlier)).drop(columns=["layer", "neuron"])
        names = [neuron_link(address, name) for name in listed.name]
        tables.append(table(listed, caption="earlier neurons", links={"name": names}))
    said = f"{found.title}. What in the stream gave it this score: all parts add up to it."
    return section("Who asked", words(said), html.Div(tables, className="pair"), name="drivers")


def gather(session: Session, address: Address, live: Live) -> Export:
    """Gather the card, or the predictions with the slider's activation."""
    reading = session.reading(address.neuron)
    tables, recipe = reading.tables(), write_recipe(reading)
    found = session.examples(reading.name)
    if found is not None:
        tables |= found.tables()
    if session.labels is not None:
        tables["label"] = session.labels.pick([reading.name]).table
    tables |= session.related(reading).tables()
    result: Result = reading
    if address.text("prompt"):
        trace = session.trace(address)
        tables["prompt"] = trace.neuron(reading.name, address.token("answer"))
        position = trace.at(int(address.number("position", -1)))
        tables["drivers"] = session.drivers(trace, reading.name, position).table
        value = live.sliders.get("set", address.number("set", 0.0) if address.has("set") else None)
        if value is not None:
            many = int(live.sliders.get("generate", 0))
            result = steering = session.steering(address, reading.name, float(value), generate=many)
            tables |= steering.tables()
            recipe = write_recipe(steering)
    return Export(reading.name, result, tables, recipe)


def register(app: Dash, session: Session) -> None:
    """Register the sliders."""
    register_whatif(app, session)

"""The page of a neuron: its card, its relatives, its examples, what it does on the prompt, and what if.

What if sets the neuron's activation with a slider: the predictions and the texts that follow.
"""

import math

from dash import Dash, Input, Output, State, dcc, html, no_update

from ffnprobe.corpora.examples import join
from ffnprobe.errors import FfnProbeError
from ffnprobe.layout import escape_bidi
from ffnprobe.reading.readings import TITLES, Reading, Readings, describe
from ffnprobe.recipes import spell_token, write_recipe
from ffnprobe.results import Result
from ffnprobe.tracing.drivers import Drivers
from ffnprobe.views.explorer import components as ui
from ffnprobe.views.explorer.addresses import Address, read_address
from ffnprobe.views.explorer.components import Component, Parts, Viewport
from ffnprobe.views.explorer.exports import Export, Live, bar
from ffnprobe.views.explorer.session import EXAMPLES, MOST_WRITTEN, Session
from ffnprobe.views.figures import plot

TOKENS = 10
DRIVERS = 10
STEERED = 8
WRITTEN = 20


def _choose(address: Address) -> Component:
    box = dcc.Input(id="name", value=address.neuron, placeholder="L3N12", spellCheck=False)
    parts = [ui.field("Neuron", box), html.Button("Show", id="go")]
    return html.Div(parts, className="row", role="search")


def show(session: Session, address: Address, viewport: Viewport) -> Component:
    if not address.neuron:
        c = session.model.config
        about = f"{session.model.name} has {c.layers} layers of {c.d_mlp:,} neurons: L0N0 to L{c.layers - 1}N{c.d_mlp - 1}."
        return ui.page("Which neuron?", ui.words(about), _choose(address))
    try:
        reading = session.reading(address.neuron)
    except FfnProbeError as error:
        return ui.page("Which neuron?", _choose(address), ui.alert(error))
    quoted = []
    if (examples := session.examples(reading.name)) is not None:
        about = ui.words(f"{examples.title}; {examples.provenance.describe()}.", is_soft=True)
        quotes = ui.show_blocks(examples.quote(EXAMPLES), address, viewport)
        quoted.append(ui.section("Examples", about, *quotes))
    related = ui.show_blocks(session.related(reading).document(), address, viewport)
    return ui.page(
        [reading.name, " ", html.Span(reading.kind, className="kind")],
        _choose(address),
        _show_card(session, reading, address),
        *_show_prompt(session, address, reading, viewport),
        *quoted,
        ui.section("Related neurons", *related),
        bar(),
    )


def _show_card(session: Session, reading: Reading, address: Address) -> Component:
    model = session.model
    listed = Readings(model, (reading,), reading.provenance).tokens(min(TOKENS, len(model.vocab)))
    lists = []
    for side, part in listed.groupby("list", sort=False):
        title = TITLES[str(side)]
        links = [_link_token(session, address, token) for token in part.id.tolist()]
        values = ui.table(part[["token", "value"]], caption=title, links={"token": links})
        lists.append(html.Div([html.H3(title), values]))
    label = None if session.labels is None else session.labels.of(reading.name)
    parts = [html.Div(lists, className="lists")]
    if label is not None:
        parts.insert(0, html.P(escape_bidi(f"Label: {label.describe()}"), id="label"))
    numbers = [ui.words(line, is_soft=True) for line in describe(reading)]
    return ui.section("Question and answer", *parts, *numbers)


def _link_token(session: Session, address: Address, token: int) -> Component:
    """Link a token to the neurons that promote it, if it can be typed."""
    shown, text = session.model.vocab.show(token), spell_token(session.model, token)
    return shown if isinstance(text, int) else ui.link(shown, address.to("/search", token=text))


def _show_prompt(session: Session, address: Address, reading: Reading, viewport: Viewport) -> Parts:
    form = ui.prompt_form(session, address, None, has_answer=False)
    if not address.text("prompt"):
        return [ui.section("On a prompt", form)]
    try:
        trace = session.trace(address)
        pushes = trace.neuron(reading.name, address.token("answer"))
        position = trace.at(address.position)
    except FfnProbeError as error:
        return [ui.section("On a prompt", form, ui.alert(error))]
    activations = pushes.activation.tolist()
    return [
        ui.section(
            "On the prompt",
            ui.prompt_form(session, address, trace, has_answer=False),
            ui.chips(trace.tokens, activations, address=address, current=position),
            ui.words("Colour: the activation at a token (blue above zero). Click a token to see who asked there.", is_soft=True),
            ui.table(pushes, caption=f"{reading.name} at every token: its activation, and its push toward a token: direct, and through attention, in logits"),
            html.P(ui.link("Back to the prompt and its evidence", address.to("/"))),
        ),
        _show_drivers(session.drivers(trace, reading.name, position), address),
        _show_what_if(session, address, reading.name, activations, viewport),
    ]  # fmt: skip


def _show_drivers(drivers: Drivers, address: Address) -> Component:
    """Show what gave the neuron its score: parts of the stream, and earlier neurons one by one."""
    parts = drivers.table.drop(columns=["kind", "layer", "head"])
    caption = "parts of the stream, the strongest first"
    tables = [ui.table(parts, caption=caption, most=DRIVERS)]
    if earlier := drivers.account.neurons.numel():
        neurons = drivers.top(min(DRIVERS, earlier))
        tables.append(ui.neuron_table(neurons, address, caption="earlier neurons"))
    about = f"{drivers.title}. What in the stream gave it this score: all parts add up to it."
    pair = html.Div(tables, className="pair")
    return ui.section("Who asked", ui.words(about), pair, name="drivers")


def _show_what_if(
    session: Session, address: Address, name: str, activations: list[float], viewport: Viewport
) -> Component:
    low = min(-2.0, math.floor(min(activations)))
    high = max(8.0, math.ceil(2 * max(activations)))
    value = address.number("set", round(activations[-1], 2))
    slider = dcc.Input(id="set", type="range", min=low, max=high, step=0.05, value=value)
    many = dcc.Input(id="many", type="range", min=1, max=MOST_WRITTEN, step=1, value=WRITTEN)
    about = f"Set the activation of {name} at every token and see what the model predicts. Its own activation at the last token is {activations[-1]:.3f}."
    changed = _show_steered(session, address, name, value, viewport) if address.has("set") else []
    return ui.section(
        "What if",
        ui.words(about),
        dcc.Store(id="first", data=value),
        ui.field("Activation", slider, hint=f"from {low:g} to {high:g}"),
        html.Div(changed, id="steered", **{"aria-live": "polite"}),
        html.Div([ui.field("Tokens to generate", many), html.Button("Generate both texts", id="write", n_clicks=0)], className="row"),
        html.Div(id="texts", **{"aria-live": "polite"}),
    )  # fmt: skip


def _show_steered(
    session: Session, address: Address, name: str, value: float, viewport: Viewport
) -> Parts:
    try:
        steering = session.steering(address, name, value)
    except FfnProbeError as error:
        return [ui.alert(error)]
    k = min(STEERED, len(session.model.vocab))
    predictions = steering.predictions(k).drop(columns="id")
    return [
        html.P(html.Output(f"{name} = {value:g}")),
        ui.table(predictions, caption=f"before and after {name} = {value:g}"),
        ui.figure(plot(steering, top=k), viewport),
    ]


def gather(session: Session, address: Address, live: Live) -> Export:
    """Gather the card, or the predictions with the slider's activation."""
    reading = session.reading(address.neuron)
    result: Result = reading
    tables = reading.tables()
    if (examples := session.examples(reading.name)) is not None:
        tables |= examples.tables()
    if session.labels is not None:
        tables["label"] = session.labels.pick([reading.name]).table
    tables |= session.related(reading).tables()
    if address.text("prompt"):
        trace = session.trace(address)
        tables["prompt"] = trace.neuron(reading.name, address.token("answer"))
        position = trace.at(address.position)
        tables["drivers"] = session.drivers(trace, reading.name, position).table
        value = live.sliders.get("set", address.number("set", 0.0) if address.has("set") else None)
        if value is not None:
            many = int(live.sliders.get("generate", 0))
            result = session.steering(address, reading.name, float(value), generate=many)
            tables |= result.tables()
    return Export(reading.name, result, tables, write_recipe(result))


def register(app: Dash, session: Session) -> None:
    def steer(address: Address, value: float, viewport: Viewport) -> Parts:
        return _show_steered(session, address, address.neuron, value, viewport)

    ui.follow_slider(app, "set", "steered", steer)

    def write(
        clicks: int, moved: float | str | None, many: float | str | None, path: str, search: str
    ) -> tuple[object, object]:
        if not clicks or moved is None or many is None:
            return no_update, no_update
        address, value, length = read_address(path, search), float(moved), int(float(many))
        live = {"set": value, "generate": length}
        try:
            steering = session.steering(address, address.neuron, value, generate=length)
        except FfnProbeError as error:
            return ui.alert(error), live
        show = session.model.vocab.show_all
        before, after = steering.continued_before, steering.continued_after
        texts = {"as it is": before, f"{address.neuron} = {value:g}": after}
        return ui.define({title: join(tuple(show(ids))) for title, ids in texts.items()}), live

    app.callback(
        Output("texts", "children"), Output("live", "data", allow_duplicate=True),
        Input("write", "n_clicks"), State("set", "value"), State("many", "value"), *ui.PLACE,
        prevent_initial_call=True,
    )(write)  # fmt: skip

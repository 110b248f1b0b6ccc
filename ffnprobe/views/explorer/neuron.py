"""The page of a neuron: its card, its relatives, its examples, what it does on the prompt, and what if."""

from dash import Dash, dcc, html

from ffnprobe.cards import shade
from ffnprobe.corpora.contexts import Example, Examples, join
from ffnprobe.errors import FfnProbeError
from ffnprobe.reading.cards import TITLES, describe
from ffnprobe.reading.readings import Reading, Readings
from ffnprobe.reading.related import Related
from ffnprobe.results import Result
from ffnprobe.views.explorer import forms, whatif
from ffnprobe.views.explorer.addresses import Address
from ffnprobe.views.explorer.blocks import (
    Component,
    Viewport,
    alert,
    chips,
    field,
    link,
    neuron_link,
    section,
    table,
    words,
)
from ffnprobe.views.explorer.exports import Export, Live, bar
from ffnprobe.views.explorer.session import EXAMPLES, Session
from ffnprobe.views.recipes import recipe_reading, recipe_steering, spell_token

TOKENS = 10
RELATIONS = {
    "feeds": "Its answer feeds the questions of",
    "fed_by": "Its question is fed by the answers of",
    "similar": "Its answer resembles those of",
    "opens": "Its answer feeds the gates of",
    "opened_by": "Its gate is fed by the answers of",
}


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
            _card(reading, address),
            *_on_prompt(session, address, reading, viewport),
            *_examples(session.examples(reading.name)),
            _related(session.related(reading), address),
            bar(),
        ]
    )


def _card(reading: Reading, address: Address) -> Component:
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
    return section("Question and answer", html.Div(lists, className="lists"), *numbers)


def _token(address: Address, shown: str, token: str | int) -> Component:
    """Link a token to the neurons that promote it, if it can be typed."""
    return shown if isinstance(token, int) else link(shown, address.to("/search", token=token))


def _related(related: Related, address: Address) -> Component:
    tables = []
    for relation, found in related.tables().items():
        if found.empty:
            continue
        names = [neuron_link(address, name) for name in found.name]
        shown = found.drop(columns=["layer", "neuron"])
        tables += [
            html.H3(RELATIONS[relation]),
            table(shown, caption=RELATIONS[relation], links={"name": names}),
        ]
    return section("Related neurons", words("From the weights alone.", is_soft=True), *tables)


def _examples(found: Examples | None) -> list[Component]:
    if found is None:
        return []
    parts = [words(f"{found.title}; {found.provenance.describe()}.", is_soft=True)]
    for side, listed in found.sides(EXAMPLES).items():
        parts += [html.H3(side), html.Ul([_example(e, listed) for e in listed], className="quotes")]
    return [section("Examples", *parts)]


def _example(example: Example, listed: tuple[Example, ...]) -> Component:
    most = max(abs(e.activation) for e in listed) or 1.0
    mark = html.Mark(example.token, style={"backgroundColor": shade(example.activation / most)})
    where = html.Small(f" {example.activation:.3f} ({example.text}, {example.position})", className="soft")  # fmt: skip
    return html.Li([join(example.before), mark, join(example.after), where])


def _on_prompt(
    session: Session, address: Address, reading: Reading, viewport: Viewport
) -> list[Component]:
    if not address.text("prompt"):
        return [section("On a prompt", forms.prompt_form(address, None, has_answer=False))]
    try:
        trace = session.trace(address)
        found = trace.neuron(reading.name, address.token("answer"))
    except FfnProbeError as error:
        return [section("On a prompt", forms.prompt_form(address, None, has_answer=False), alert(error))]  # fmt: skip
    activations = found.activation.tolist()
    return [
        section(
            "On the prompt",
            forms.prompt_form(address, trace, has_answer=False),
            chips(trace.tokens, activations),
            words("Colour: the activation at a token (blue above zero).", is_soft=True),
            table(found, caption=f"{reading.name} at every token: its activation, and its push toward a token, in logits"),
            html.P(link("Back to the prompt and its evidence", address.to("/"))),
        ),
        whatif.panel(session, address, reading.name, activations, viewport),
    ]  # fmt: skip


def gather(session: Session, address: Address, live: Live) -> Export:
    """Gather the card, or the predictions with the slider's activation."""
    reading = session.reading(address.neuron)
    tables, recipe = reading.tables(), recipe_reading(reading)
    found = session.examples(reading.name)
    if found is not None:
        tables |= found.tables()
    tables |= session.related(reading).tables()
    result: Result = reading
    if address.text("prompt"):
        tables["prompt"] = session.trace(address).neuron(reading.name, address.token("answer"))
        value = live.sliders.get("set", address.number("set", 0.0) if address.has("set") else None)
        if value is not None:
            many = int(live.sliders.get("generate", 0))
            result = steering = session.steering(address, reading.name, float(value), generate=many)
            tables |= steering.tables()
            recipe = recipe_steering(steering, {reading.name: float(value)}, generate=many)
    return Export(reading.name, result, tables, recipe)


def register(app: Dash, session: Session) -> None:
    """Register the sliders."""
    whatif.register(app, session)

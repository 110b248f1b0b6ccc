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
from ffnprobe.views.explorer.blocks import (
    Component,
    Look,
    alert,
    chips,
    field,
    link,
    neuron_link,
    section,
    table,
    words,
)
from ffnprobe.views.explorer.desk import EXAMPLES, Desk
from ffnprobe.views.explorer.places import Place
from ffnprobe.views.explorer.sheets import Live, Sheet, bar
from ffnprobe.views.recipes import recipe_reading, recipe_steering, spell_token

TOKENS = 10
RELATIONS = {
    "feeds": "Its answer feeds the questions of",
    "fed_by": "Its question is fed by the answers of",
    "similar": "Its answer is like those of",
    "opens": "Its answer feeds the gates of",
    "opened_by": "Its gate is fed by the answers of",
}


def show_none(desk: Desk, place: Place, look: Look) -> Component:
    """Ask which neuron."""
    c = desk.model.config
    about = f"{desk.model.name} has {c.layers} layers of {c.d_mlp:,} neurons: L0N0 to L{c.layers - 1}N{c.d_mlp - 1}."
    return html.Div([html.H1("Which neuron?"), words(about), _chooser(place)])


def _chooser(place: Place) -> Component:
    box = dcc.Input(id="name", value=place.neuron, placeholder="L3N12", spellCheck=False)  # fmt: skip
    button = html.Button("Show", id="go")
    return html.Div([field("Neuron", box), button], className="row", role="search")


def show(desk: Desk, place: Place, look: Look) -> Component:
    """Show a neuron."""
    try:
        reading = desk.reading(place.neuron)
    except FfnProbeError as error:
        return html.Div([html.H1("Which neuron?"), _chooser(place), alert(error)])
    return html.Div(
        [
            html.H1([reading.name, " ", html.Span(reading.kind, className="kind")]),
            _chooser(place),
            _card(reading, place),
            *_on_prompt(desk, place, reading, look),
            *_examples(desk.examples(reading.name)),
            _related(desk.related(reading), place),
            bar(),
        ]
    )


def _card(reading: Reading, place: Place) -> Component:
    model = reading.question.model
    listed = Readings(model, (reading,), reading.provenance).tokens(min(TOKENS, len(model.vocab)))
    lists = []
    for side, part in listed.groupby("list", sort=False):
        tokens = [
            _token(place, model.vocab.show(token), spell_token(model, token))
            for token in part.id.tolist()
        ]
        whole = table(part[["token", "value"]], caption=TITLES[str(side)], links={"token": tokens})
        lists.append(html.Div([html.H3(TITLES[str(side)]), whole]))
    numbers = [html.P(line, className="soft") for line in describe(reading)]
    return section("Question and answer", html.Div(lists, className="lists"), *numbers)


def _token(place: Place, shown: str, token: str | int) -> Component:
    """Lead from a token to the neurons that push it, where it can be typed."""
    return shown if isinstance(token, int) else link(shown, place.to("/search", token=token))


def _related(related: Related, place: Place) -> Component:
    tables = []
    for relation, found in related.tables().items():
        if found.empty:
            continue
        names = [neuron_link(place, name) for name in found.name]
        shown = found.drop(columns=["layer", "neuron"])
        tables += [
            html.H3(RELATIONS[relation]),
            table(shown, caption=RELATIONS[relation], links={"name": names}),
        ]
    return section("Related neurons", words("By the weights alone.", is_soft=True), *tables)


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


def _on_prompt(desk: Desk, place: Place, reading: Reading, look: Look) -> list[Component]:
    if not place.text("prompt"):
        return [section("On a prompt", forms.prompt_form(place, None, has_answer=False))]
    try:
        trace = desk.trace(place)
        found = trace.neuron(reading.name, place.token("answer"))
    except FfnProbeError as error:
        return [section("On a prompt", forms.prompt_form(place, None, has_answer=False), alert(error))]  # fmt: skip
    activations = found.activation.tolist()
    return [
        section(
            "On the prompt",
            forms.prompt_form(place, trace, has_answer=False),
            chips(trace.tokens, activations),
            words("Colour: the activation at a token (blue above zero).", is_soft=True),
            table(found, caption=f"{reading.name} at every token: its activation, and its push toward a token, in logits"),
            html.P(link("Back to the prompt and its evidence", place.to("/"))),
        ),
        whatif.panel(desk, place, reading.name, activations, look),
    ]  # fmt: skip


def gather(desk: Desk, place: Place, live: Live) -> Sheet:
    """Gather the card, or what the slider made of the prompt."""
    reading = desk.reading(place.neuron)
    tables, recipe = reading.tables(), recipe_reading(reading)
    found = desk.examples(reading.name)
    if found is not None:
        tables |= found.tables()
    tables |= desk.related(reading).tables()
    result: Result = reading
    if place.text("prompt"):
        tables["prompt"] = desk.trace(place).neuron(reading.name, place.token("answer"))
        value = live.sliders.get("set", place.number("set", 0.0) if place.has("set") else None)
        if value is not None:
            many = int(live.sliders.get("generate", 0))
            result = steering = desk.steering(place, reading.name, float(value), generate=many)
            tables |= steering.tables()
            recipe = recipe_steering(steering, {reading.name: float(value)}, generate=many)
    return Sheet(reading.name, result, tables, recipe)


def register(app: Dash, desk: Desk) -> None:
    """Answer the sliders."""
    whatif.register(app, desk)

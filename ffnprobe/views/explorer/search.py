"""The page that leads from tokens to neurons, and the survey of all neurons as a field to walk in."""

from typing import Any

from dash import Dash, Input, Output, State, dcc, html, no_update

from ffnprobe.errors import FfnProbeError
from ffnprobe.reading.kinds import KINDS
from ffnprobe.reading.rankings import RANKS, SIDES, search
from ffnprobe.reading.searches import Search
from ffnprobe.reading.surveys import Survey
from ffnprobe.views.explorer.blocks import (
    Component,
    Look,
    alert,
    field,
    figure,
    neuron_link,
    read_look,
    section,
    table,
    words,
)
from ffnprobe.views.explorer.desk import Desk
from ffnprobe.views.explorer.places import Place, read_place
from ffnprobe.views.explorer.sheets import Live, Sheet, bar
from ffnprobe.views.plots import plot
from ffnprobe.views.recipes import recipe_search, recipe_survey

FOUND = 20
TICK = 300  # milliseconds between two looks at the survey
LISTED = 40
# What the form offers, the empty value being the default; the names are those of the address.
CHOICES = {
    "kind": ("Kind", {"": "any"} | {kind: kind for kind in KINDS}),
    "rank": ("Rank by", {"": RANKS[0]} | {rank: rank for rank in RANKS[1:]}),
    "by": ("Search", {"": SIDES[0] + "s"} | {side: side + "s" for side in SIDES[1:]}),
    "away": ("Push", {"": "toward", "1": "away"}),
}


def show(desk: Desk, place: Place, look: Look) -> Component:
    """Show what a search finds, and the survey."""
    parts: list[Component] = [html.H1("Which neurons push toward a token?"), _form(place)]
    parts.append(html.Div(_results(desk, place, look), id="found"))
    about = (
        "Every neuron is a point: how unevenly its answer falls on the vocabulary. A click on one, or a "
        "name in the table, leads to its card."
    )
    known = desk.neurons
    holder = html.Div([] if known is None else _field(desk, known, place, look), id="survey")
    waiting = html.Div(
        [
            dcc.Store(id="surveying", data=known is None),
            dcc.Store(id="survey-job"),
            dcc.Interval(id="clock", interval=TICK, max_intervals=0),
        ]
    )
    status = html.Div(id="surveyed", role="status")
    parts += [section("All neurons", words(about), waiting, status, holder), bar()]
    return html.Div(parts)


def _form(place: Place) -> Component:
    tokens = dcc.Textarea(
        id="tokens", value="\n".join(place.texts("token")), rows=2, spellCheck=False,
        placeholder=" basketball",
    )  # fmt: skip
    layers = dcc.Input(id="layers", value=place.text("layers"), placeholder="all; 3-5")
    choices = [
        field("Layers", layers),
        *(_choice(label, name, options, place) for name, (label, options) in CHOICES.items()),
    ]
    hint = "One token a line, mind its space; several are searched for together. By z, hub neurons are discounted."
    return html.Div(
        [
            field("Tokens", tokens, hint=hint),
            html.Div([*choices, html.Button("Search", id="find", className="main")], className="row"),
        ],
        className="form", role="search",
    )  # fmt: skip


def _choice(label: str, name: str, options: dict[str, str], place: Place) -> Component:
    chosen = place.text(name)
    listed = [
        html.Option(text, value=value, selected=value == chosen) for value, text in options.items()
    ]
    return field(label, html.Select(listed, id=name))


def find(desk: Desk, place: Place) -> Search:
    """Search as a place asks for it."""
    kind, layers, among = place.text("kind"), place.text("layers") or None, None
    if kind:
        if desk.neurons is None:
            raise FfnProbeError("the kinds are not known yet: all neurons are being surveyed.")
        among = desk.neurons.of_kind(kind)
    return search(
        desk.model, place.texts("token"), among=among, layers=layers, **given_options(desk, place)
    )


def given_options(desk: Desk, place: Place) -> dict[str, Any]:
    """Name the options of `search` that a place gives, besides layers and kind."""
    options: dict[str, Any] = {"k": min(FOUND, desk.model.config.d_mlp)}
    options |= {name: place.text(name) for name in ("rank", "by") if place.text(name)}
    return options | ({"away": True} if place.text("away") else {})


def _results(desk: Desk, place: Place, look: Look) -> list[Component]:
    if not place.texts("token"):
        return []
    try:
        found = find(desk, place)
    except FfnProbeError as error:
        return [alert(error)]
    names = [neuron_link(place, name) for name in found.table.name]
    shown = found.table.drop(columns=["layer", "neuron"])
    whole = table(shown, caption="the neurons found", links={"name": names})
    return [section("Found", whole, figure(plot(found), look))]


def _field(desk: Desk, neurons: Survey, place: Place, look: Look) -> list[Component]:
    """Draw the survey and list the most selective neurons."""
    best = neurons.top(min(LISTED, len(neurons)))
    columns = ["name", "kind", "gate_tokens", "question_tokens", "promotes", "suppresses", "vocab_skew", "vocab_kurtosis", "null_space"]  # fmt: skip
    names = [neuron_link(place, name) for name in best.name]
    caption = f"the {len(best)} neurons with the most selective answers"
    return [
        figure(desk.field(neurons), look, name="kinds"),
        html.H3(caption.capitalize()),
        table(best.filter(columns), caption=caption, links={"name": names}),
    ]


def gather(desk: Desk, place: Place, live: Live) -> Sheet:
    """Gather what was found, else the survey."""
    neurons = desk.neurons
    tables = {} if neurons is None else {"survey": neurons.table}
    if not place.texts("token"):
        if neurons is None:
            raise FfnProbeError("the survey is not there yet.", remedy="in a moment again")
        recipe = recipe_survey(neurons)
        return Sheet("survey", neurons, tables, recipe)
    found = find(desk, place)
    options = given_options(desk, place)
    if place.text("layers"):
        options["layers"] = place.text("layers")
    kind = place.text("kind")
    recipe = recipe_search(found.provenance, place.texts("token"), options, kind=kind or None)
    return Sheet("search", found, {"search": found.table} | tables, recipe)


def register(app: Dash, desk: Desk) -> None:
    """Start and watch the survey."""

    def start(is_needed: bool | None) -> Any:
        if not is_needed:
            return no_update, no_update
        return desk.survey().name, 1

    app.callback(
        Output("survey-job", "data"), Output("clock", "max_intervals"), Input("surveying", "data")
    )(start)

    def follow(
        ticks: int, job: str | None, path: str, search_text: str, screen: object
    ) -> tuple[object, ...]:
        found = desk.surveys.find(job)
        if found is None:
            return (no_update,) * 5
        if not found.is_over:
            said = f"surveying: {found.done:,} of {desk.model.config.neurons:,} neurons"
            return no_update, no_update, said, ticks + 1, no_update
        if desk.neurons is None:
            return no_update, no_update, "the survey was stopped.", no_update, no_update
        place, look = read_place(path, search_text), read_look(screen)
        # A search for a kind has been waiting for the survey.
        waited = _results(desk, place, look) if place.text("kind") else no_update
        # The last tells the end of the page that there is more to take along.
        drawn = _field(desk, desk.neurons, place, look)
        return waited, drawn, "", no_update, {"surveyed": True}

    app.callback(
        Output("found", "children"), Output("survey", "children"), Output("surveyed", "children"),
        Output("clock", "max_intervals", allow_duplicate=True),
        Output("live", "data", allow_duplicate=True),
        Input("clock", "n_intervals"), State("survey-job", "data"),
        State("place", "pathname"), State("place", "search"), State("screen", "data"),
        prevent_initial_call=True,
    )(follow)  # fmt: skip

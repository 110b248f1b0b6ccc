"""The search page: from tokens to neurons, and a survey of all neurons."""

from typing import Any

from dash import Dash, Input, Output, State, dcc, html, no_update

from ffnprobe.arguments import RANKS, SIDES
from ffnprobe.errors import FfnProbeError
from ffnprobe.labels.surveying import join_labels
from ffnprobe.reading.measures import KINDS
from ffnprobe.reading.searches import Search, search
from ffnprobe.reading.surveys import Survey
from ffnprobe.recipes import write_recipe
from ffnprobe.results import change
from ffnprobe.views.explorer.addresses import Address, read_address
from ffnprobe.views.explorer.components import (
    Component,
    Viewport,
    alert,
    field,
    figure,
    neuron_link,
    read_viewport,
    section,
    table,
    words,
)
from ffnprobe.views.explorer.exports import Export, Live, bar
from ffnprobe.views.explorer.session import Session
from ffnprobe.views.figures import plot

FOUND = 20
TICK = 300  # milliseconds between two polls of the survey
LISTED = 40
# The choices of the form, by their names in the address; the empty value is the default.
CHOICES = {
    "kind": ("Kind", {"": "any"} | {kind: kind for kind in KINDS}),
    "rank": ("Rank by", {"": RANKS[0]} | {rank: rank for rank in RANKS[1:]}),
    "by": ("Search", {"": SIDES[0] + "s"} | {side: side + "s" for side in SIDES[1:]}),
    "away": ("Push", {"": "toward", "1": "away"}),
}


def show(session: Session, address: Address, viewport: Viewport) -> Component:
    """Show what a search finds, and the survey."""
    parts: list[Component] = [html.H1("Which neurons promote a token?"), _form(address)]
    parts.append(html.Div(_results(session, address, viewport), id="found"))
    about = (
        "Every neuron is a point: how unevenly its answer falls on the vocabulary. A click on one, or a "
        "name in the table, leads to its card."
    )
    known = session.neurons
    holder = html.Div(
        [] if known is None else _field(session, known, address, viewport), id="survey"
    )
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


def _form(address: Address) -> Component:
    tokens = dcc.Textarea(
        id="tokens", value="\n".join(address.texts("token")), rows=2, spellCheck=False,
        placeholder=" basketball",
    )  # fmt: skip
    layers = dcc.Input(id="layers", value=address.text("layers"), placeholder="all; 3-5")
    choices = [
        field("Layers", layers),
        *(_choice(label, name, options, address) for name, (label, options) in CHOICES.items()),
    ]
    hint = "One token a line, with its leading space; several are searched for together. Ranking by z discounts hub neurons."
    return html.Div(
        [
            field("Tokens", tokens, hint=hint),
            html.Div([*choices, html.Button("Search", id="find", className="main")], className="row"),
        ],
        className="form", role="search",
    )  # fmt: skip


def _choice(label: str, name: str, options: dict[str, str], address: Address) -> Component:
    chosen = address.text(name)
    listed = [
        html.Option(text, value=value, selected=value == chosen) for value, text in options.items()
    ]
    return field(label, html.Select(listed, id=name))


def find(session: Session, address: Address) -> Search:
    """Search as an address asks for."""
    kind, layers, among = address.text("kind"), address.text("layers") or None, None
    if kind:
        if session.neurons is None:
            raise FfnProbeError("the kinds are not known yet: the survey is still running.")
        among = session.neurons.of_kind(kind)
    found = search(
        session.model,
        address.texts("token"),
        among=among,
        layers=layers,
        **given_options(session, address),
    )
    return change(found, table=join_labels(found.table, session.labels))


def given_options(session: Session, address: Address) -> dict[str, Any]:
    """Return the options of `search` in an address, except layers and kind."""
    options: dict[str, Any] = {"top": min(FOUND, session.model.config.d_mlp)}
    options |= {name: address.text(name) for name in ("rank", "by") if address.text(name)}
    return options | ({"away": True} if address.text("away") else {})


def _results(session: Session, address: Address, viewport: Viewport) -> list[Component]:
    if not address.texts("token"):
        return []
    try:
        found = find(session, address)
    except FfnProbeError as error:
        return [alert(error)]
    names = [neuron_link(address, name) for name in found.table.name]
    shown = found.table.drop(columns=["layer", "neuron"])
    whole = table(shown, caption="the neurons found", links={"name": names})
    return [section("Found", whole, figure(plot(found), viewport))]


def _field(
    session: Session, neurons: Survey, address: Address, viewport: Viewport
) -> list[Component]:
    """Draw the survey and list the most selective neurons."""
    best = join_labels(neurons.top(min(LISTED, len(neurons))), session.labels)
    columns = ["name", "kind", "gate_tokens", "question_tokens", "promotes", "suppresses", "vocab_skew", "vocab_kurtosis", "null_space", "label", "label_f1"]  # fmt: skip
    names = [neuron_link(address, name) for name in best.name]
    caption = f"the {len(best)} neurons with the most selective answers"
    return [
        figure(session.field(neurons), viewport, name="kinds"),
        html.H3(caption.capitalize()),
        table(best.filter(columns), caption=caption, links={"name": names}),
    ]


def gather(session: Session, address: Address, live: Live) -> Export:
    """Gather what was found, else the survey."""
    neurons = session.neurons
    tables = {} if neurons is None else {"survey": neurons.table}
    if not address.texts("token"):
        if neurons is None:
            raise FfnProbeError("the survey is not finished yet.", remedy="wait a moment")
        return Export("survey", neurons, tables, write_recipe(neurons, page=True))
    found = find(session, address)
    recipe = write_recipe(found, kind=address.text("kind") or None)
    return Export("search", found, {"search": found.table} | tables, recipe)


def register(app: Dash, session: Session) -> None:
    """Register the survey."""

    def start(is_needed: bool | None) -> Any:
        if not is_needed:
            return no_update, no_update
        return session.survey().name, 1

    app.callback(
        Output("survey-job", "data"), Output("clock", "max_intervals"), Input("surveying", "data")
    )(start)

    def follow(
        ticks: int, job: str | None, path: str, search_text: str, screen: object
    ) -> tuple[object, ...]:
        found = session.surveys.find(job)
        if found is None:
            return (no_update,) * 5
        if not found.is_over:
            said = f"surveying: {found.done:,} of {session.model.config.neurons:,} neurons"
            return no_update, no_update, said, ticks + 1, no_update
        if session.neurons is None:
            return no_update, no_update, "the survey was stopped.", no_update, no_update
        address, viewport = read_address(path, search_text), read_viewport(screen)
        # A search for a kind waits for the survey.
        waited = _results(session, address, viewport) if address.text("kind") else no_update
        # The last value tells the export that there is a new table.
        drawn = _field(session, session.neurons, address, viewport)
        return waited, drawn, "", no_update, {"surveyed": True}

    app.callback(
        Output("found", "children"), Output("survey", "children"), Output("surveyed", "children"),
        Output("clock", "max_intervals", allow_duplicate=True),
        Output("live", "data", allow_duplicate=True),
        Input("clock", "n_intervals"), State("survey-job", "data"),
        State("location", "pathname"), State("location", "search"), State("screen", "data"),
        prevent_initial_call=True,
    )(follow)  # fmt: skip

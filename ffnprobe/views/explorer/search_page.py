"""The pages that lead to neurons and to prompts: tokens searched, all neurons surveyed, facts listed."""

from collections import Counter
from typing import Any

import pandas as pd
from dash import Dash, Input, Output, State, dcc, html, no_update

from ffnprobe.arguments import RANKS, SIDES
from ffnprobe.errors import FfnProbeError
from ffnprobe.labels.stored_labels import join_labels
from ffnprobe.reading.measures import KINDS
from ffnprobe.reading.searches import Search, search
from ffnprobe.reading.surveys import Survey
from ffnprobe.recipes import Recipe, write_recipe
from ffnprobe.results import as_result, change
from ffnprobe.views.explorer import components as ui
from ffnprobe.views.explorer.addresses import Address, read_address
from ffnprobe.views.explorer.components import Component, Parts, Viewport
from ffnprobe.views.explorer.exports import Export, Live, bar
from ffnprobe.views.explorer.session import TICK, Session
from ffnprobe.views.figures import plot

FOUND = 20
LISTED = 40
FACTS = 1_000
# The choices of the form, by their names in the address; the empty value is the default.
CHOICES = {
    "kind": ("Kind", {"": "any"} | {kind: kind for kind in KINDS}),
    "rank": ("Rank by", {"": RANKS[0]} | {rank: rank for rank in RANKS[1:]}),
    "by": ("Search", {"": SIDES[0] + "s"} | {side: side + "s" for side in SIDES[1:]}),
    "away": ("Push", {"": "toward", "1": "away"}),
}
# The columns of the survey that are shown.
SURVEYED = [
    "name", "kind", "gate_tokens", "question_tokens", "promotes", "suppresses", "vocab_skew", "vocab_kurtosis",
    "null_space", "label", "label_f1",
]  # fmt: skip


def show(session: Session, address: Address, viewport: Viewport) -> Component:
    about = (
        "Every neuron is a point: how unevenly its answer falls on the vocabulary. A click on one, or a "
        "name in the table, leads to its card."
    )
    neurons = session.neurons
    survey = [] if neurons is None else _show_survey(session, neurons, address, viewport)
    asked, job = dcc.Store(id="surveying", data=neurons is None), dcc.Store(id="survey-job")
    waiting = [asked, job, dcc.Interval(id="clock", interval=TICK, max_intervals=0)]
    progress = html.Div(id="surveyed", role="status")
    holder = html.Div(survey, id="survey")
    return ui.page(
        "Which neurons promote a token?",
        _show_form(address),
        html.Div(_show_results(session, address, viewport), id="found"),
        ui.section("All neurons", ui.words(about), html.Div(waiting), progress, holder),
        bar(),
    )


def _show_form(address: Address) -> Component:
    tokens = dcc.Textarea(
        id="tokens", value="\n".join(address.texts("token")), rows=2, spellCheck=False,
        placeholder=" basketball",
    )  # fmt: skip
    layers = dcc.Input(id="layers", value=address.text("layers"), placeholder="all; 3-5")
    row = [ui.field("Layers", layers)]
    for name, (label, options) in CHOICES.items():
        choices = [
            html.Option(text, value=value, selected=value == address.text(name))
            for value, text in options.items()
        ]
        row.append(ui.field(label, html.Select(choices, id=name)))
    row.append(html.Button("Search", id="find", className="main"))
    hint = "One token a line, with its leading space; several are searched for together. Ranking by z discounts hub neurons."
    parts = [ui.field("Tokens", tokens, hint=hint), html.Div(row, className="row")]
    return html.Div(parts, className="form", role="search")


def find(session: Session, address: Address) -> Search:
    kind, neurons, among = address.text("kind"), session.neurons, None
    if kind:
        if neurons is None:
            raise FfnProbeError("the kinds are not known yet: the survey is still running.")
        among = neurons.of_kind(kind)
    results = search(
        session.model,
        address.texts("token"),
        rank=address.text("rank") or RANKS[0],
        away=bool(address.text("away")),
        by=address.text("by") or SIDES[0],
        top=min(FOUND, session.model.config.d_mlp),
        layers=address.text("layers") or None,
        among=among,
    )
    return change(results, table=join_labels(results.table, session.labels))


def _show_results(session: Session, address: Address, viewport: Viewport) -> Parts:
    if not address.texts("token"):
        return []
    try:
        results = find(session, address)
    except FfnProbeError as error:
        return [ui.alert(error)]
    listed = ui.neuron_table(results.table, address, caption="the neurons found")
    return [ui.section("Found", listed, ui.figure(plot(results), viewport))]


def _show_survey(session: Session, neurons: Survey, address: Address, viewport: Viewport) -> Parts:
    best = join_labels(neurons.top(min(LISTED, len(neurons))), session.labels)
    caption = f"the {len(best)} neurons with the most selective answers"
    return [
        ui.figure(session.field(neurons), viewport, name="kinds"),
        html.H3(caption.capitalize()),
        ui.neuron_table(best.filter(SURVEYED), address, caption=caption),
    ]


def gather(session: Session, address: Address, live: Live) -> Export:
    neurons = session.neurons
    tables = {} if neurons is None else {"survey": neurons.table}
    if not address.texts("token"):
        if neurons is None:
            raise FfnProbeError("the survey is not finished yet.", remedy="wait a moment")
        return Export("survey", neurons, tables, write_recipe(neurons, page=True))
    results = find(session, address)
    recipe = write_recipe(results, kind=address.text("kind") or None)
    return Export("search", results, {"search": results.table} | tables, recipe)


def register(app: Dash, session: Session) -> None:
    def start(is_needed: bool | None) -> Any:
        return (session.survey().name, 1) if is_needed else (no_update, no_update)

    app.callback(
        Output("survey-job", "data"), Output("clock", "max_intervals"), Input("surveying", "data")
    )(start)

    def follow(ticks: int, name: str | None, path: str, search_text: str, screen: object) -> Any:
        job = session.surveys.find(name)
        if job is None:
            return (no_update,) * 5
        if not job.is_over:
            progress = f"surveying: {job.done:,} of {session.model.config.neurons:,} neurons"
            return no_update, no_update, progress, ticks + 1, no_update
        neurons = session.neurons
        if neurons is None:
            return no_update, no_update, "the survey was stopped.", no_update, no_update
        address, viewport = read_address(path, search_text), ui.read_viewport(screen)
        # A search for a kind waits for the survey.
        results = _show_results(session, address, viewport) if address.text("kind") else no_update
        # The last value tells the export that there is a new table.
        survey = _show_survey(session, neurons, address, viewport)
        return results, survey, "", no_update, {"surveyed": True}

    app.callback(
        Output("found", "children"), Output("survey", "children"), Output("surveyed", "children"),
        Output("clock", "max_intervals", allow_duplicate=True),
        Output("live", "data", allow_duplicate=True),
        Input("clock", "n_intervals"), State("survey-job", "data"), *ui.HERE,
        prevent_initial_call=True,
    )(follow)  # fmt: skip


def show_facts(session: Session, address: Address, viewport: Viewport) -> Component:
    facts, (relation, listed) = session.facts, _list_facts(session, address)
    counts = Counter(row.relation for row in facts.rows)
    relations = [
        ui.link(f"{each or 'no relation'} ({many:,})", address.to("/facts", relation=each),
                is_near=True, is_current=each == relation, className="chip")
        for each, many in counts.items()
    ]  # fmt: skip
    about = f"{len(facts.rows):,} facts of {facts.source}. Click a prompt to see what the model predicts after it, and why."
    fresh = Address("/", tuple(pair for pair in address.options if pair[0] == "bos"))
    pairs = zip(listed.prompt, listed.answer, strict=True)
    prompts = [
        ui.link(prompt, fresh.here(prompt=prompt, answer=answer)) for prompt, answer in pairs
    ]
    answers = listed.answer.str.replace(" ", "␣", regex=False)
    shown = listed[["prompt", "answer", "subject"]].assign(answer=answers)
    caption, links = f"the facts of {relation}", {"prompt": prompts}
    rows = ui.table(shown, caption=caption, links=links, most=FACTS)
    nothing = ui.words("There are no facts of this relation.")
    return ui.page(
        "Facts to ask about",
        ui.words(about),
        html.Nav(relations, className="prompt", **{"aria-label": "relations"}),
        ui.section(relation or "Facts", rows if len(listed) else nothing),
        bar(),
    )


def _list_facts(session: Session, address: Address) -> tuple[str, pd.DataFrame]:
    """List the facts of the relation chosen, or of the first: subject, prompt, answer, source line."""
    facts = session.facts
    relation = address.text("relation", facts.rows[0].relation)
    own = (row for row in facts.rows if row.relation == relation)
    rows = [(row.subject, row.prompt, row.answer, row.where) for row in own]
    listed = pd.DataFrame(rows, columns=["subject", "prompt", "answer", "where"])
    provenance = session.model.provenance(settings={"facts": facts.source, "relation": relation})
    return relation, provenance.note(listed)


def gather_facts(session: Session, address: Address, live: Live) -> Export:
    relation, listed = _list_facts(session, address)
    python = (
        f"from ffnprobe.facts.formats import read_facts\n\nrows = read_facts({session.facts_file!r}).rows\n"
        f"print([row for row in rows if row.relation == {relation!r}])"
    )
    return Export("facts", as_result(listed), {"facts": listed}, Recipe(None, python))

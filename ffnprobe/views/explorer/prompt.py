"""The page of a prompt: its tokens, what comes next, what each layer already says, and why."""

import pandas as pd
from dash import Dash, Input, Output, State, dcc, html, no_update

from ffnprobe.errors import FfnProbeError
from ffnprobe.results import TableSet
from ffnprobe.tracing.streams import name_streams
from ffnprobe.tracing.trace import Trace
from ffnprobe.views.explorer import evidence, forms
from ffnprobe.views.explorer.blocks import (
    Component,
    Look,
    alert,
    chips,
    field,
    figure,
    is_untouched,
    link,
    read_look,
    section,
    table,
    words,
)
from ffnprobe.views.explorer.desk import Desk
from ffnprobe.views.explorer.places import Place, name_token, read_place
from ffnprobe.views.explorer.sheets import Live, Sheet, bar, provenance_of
from ffnprobe.views.plots import plot
from ffnprobe.views.recipes import recipe_explanation, recipe_trace, spell_token

TOKENS = 10
WARMEST = 3.0
EXAMPLES = 6


def show(desk: Desk, place: Place, look: Look) -> Component:
    """Show a prompt, or ask for one."""
    if not place.has("prompt"):
        return _welcome(desk, place)
    try:
        trace = desk.trace(place)
    except FfnProbeError as error:
        form = forms.prompt_form(place, None)
        return html.Div([html.H1("What does the model say next?"), form, alert(error)])
    return html.Div(
        [
            html.H1(_title(trace)),
            forms.prompt_form(place, trace),
            *forms.spelling_note(desk, place),
            _tokens(place, trace),
            _next(place, trace, look),
            _lens(desk, place, trace, look),
            evidence.panel(desk, place, look),
            bar(),
        ]
    )


def _title(trace: Trace) -> str:
    return f"{trace.predictions(1).token[0]} comes next"


def _welcome(desk: Desk, place: Place) -> Component:
    about = (
        "Type the beginning of a sentence. The explorer shows which token the model says next, which "
        "neurons pushed it, and what happens without them; every number leads further."
    )
    rows: list[Component] = []
    seen: set[str] = set()
    for row in desk.facts.rows:
        if row.relation not in seen and len(rows) < EXAMPLES:
            seen.add(row.relation)
            rows.append(html.Li(link(row.prompt, place.to("/", prompt=row.prompt))))
    return html.Div(
        [
            html.H1("What does the model say next, and why?"),
            words(about),
            forms.prompt_form(place, None),
            section("Or begin with one of these", html.Ul(rows)),
        ]
    )


def _tokens(place: Place, trace: Trace) -> Component:
    chosen = trace.at(int(place.number("position", -1)))
    hrefs = [place.here(position=order) for order in range(len(trace))]
    said = "What the model reads. A click on a token shows what would come next after it."
    return section("Tokens", chips(trace.tokens, hrefs=hrefs, current=chosen), words(said, is_soft=True))  # fmt: skip


def _next(place: Place, trace: Trace, look: Look) -> Component:
    warmth = place.number("temperature", 1.0)
    slider = dcc.Input(
        id="temperature", type="range", min=0.05, max=WARMEST, step=0.05, value=warmth
    )
    return section(
        "What comes next",
        dcc.Store(id="first", data=warmth),
        field("Temperature", slider, hint="Below 1 the likeliest gain, above 1 the others."),
        html.Div(_predictions(place, trace, warmth, look), id="predictions", **{"aria-live": "polite"}),
    )  # fmt: skip


def _predictions(place: Place, trace: Trace, temperature: float, look: Look) -> list[Component]:
    k, position = min(TOKENS, len(trace.model.vocab)), int(place.number("position", -1))
    found = trace.predictions(k, temperature=temperature, position=position)
    drawn = plot(trace, "predictions", k=k, temperature=temperature, position=position)
    whole = table(
        found.drop(columns="id"),
        caption=f"the {k} likeliest next tokens at temperature {temperature:g}",
        links={"token": _answers(place, trace, found)},
    )
    said = "A click on a token asks why the model says it."
    return [
        html.P(html.Output(f"temperature {temperature:g}")),
        html.Div([whole, figure(drawn, look)], className="beside"),
        words(said, is_soft=True),
    ]


def _answers(place: Place, trace: Trace, found: pd.DataFrame) -> list[Component]:
    """Make each token an answer to be explained; it is predicted where the prompt ends."""
    model = trace.model
    return [
        link(
            shown, place.here(**name_token("answer", spell_token(model, int(token)))), is_near=True
        )
        for shown, token in zip(found.token, found.id, strict=True)
    ]


def _lens(desk: Desk, place: Place, trace: Trace, look: Look) -> Component:
    said = (
        "What each layer would say, were the stream read there: only the last row is the model's own. "
        "A click on a cell, or a layer below and a token above, shows the likeliest tokens there."
    )
    after, position = place.text("after"), trace.at(int(place.number("position", -1)))
    stages = [
        link(stage, place.here(after=stage, position=position), is_near=True, className="chip",
             **({"aria-current": "true"} if stage == after else {}))
        for stage in name_streams(desk.model)
    ]  # fmt: skip
    parts = [
        words(said),
        figure(desk.lens(trace), look, name="lens"),
        html.P(["after ", *stages]),
    ]
    if after:
        k = min(TOKENS, len(desk.model.vocab))
        try:
            found = trace.predictions(k, position=position, after=after)
            caption = f"the likeliest tokens after {after} at {trace.tokens[position]} (position {position})"
            parts.append(
                html.Div([html.H3(caption), table(found.drop(columns="id"), caption=caption)])
            )
        except FfnProbeError as error:
            parts.append(alert(error))
    return section("What each layer says", *parts)


def gather(desk: Desk, place: Place, live: Live) -> Sheet:
    """Gather the evidence as far as it is known, else the predictions."""
    trace = desk.trace(place)
    warmth = float(live.sliders.get("temperature", place.number("temperature", 1.0)))
    position, k = int(place.number("position", -1)), min(10, len(desk.model.vocab))
    predictions = trace.predictions(k, temperature=warmth, position=position)
    tables = {"predictions": predictions}
    if place.text("after"):
        tables["lens"] = trace.predictions(k, position=position, after=place.text("after"))
    question = desk.question(place)
    explanation = None if question[2] is None else desk.explanation(question)
    running = (
        desk.jobs.find(live.job.get("name")) if live.job.get("question") == list(question) else None
    )
    if explanation is None and running is not None:
        explanation = running.found
    if explanation is None:
        result = TableSet("predictions", tables, provenance_of(predictions))
        return Sheet("prompt", result, tables, recipe_trace(trace, temperature=warmth))
    return Sheet(
        "explanation", explanation, explanation.tables() | tables, recipe_explanation(explanation)
    )


def register(app: Dash, desk: Desk) -> None:
    """Answer the slider."""

    def warm(
        value: float | None, first: float, live: object, path: str, search: str, screen: object
    ) -> tuple[object, object]:
        if value is None or is_untouched(value, first, live):
            return no_update, no_update
        place = read_place(path, search)
        trace = desk.trace(place)
        panel = _predictions(place, trace, float(value), read_look(screen))
        return panel, {"temperature": value}

    app.callback(
        Output("predictions", "children"), Output("live", "data", allow_duplicate=True),
        Input("temperature", "value"), State("first", "data"), State("live", "data"),
        State("place", "pathname"), State("place", "search"), State("screen", "data"),
        prevent_initial_call=True,
    )(warm)  # fmt: skip

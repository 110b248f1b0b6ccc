"""The page of a prompt: its tokens, the prediction, the logit lens, and why."""

import pandas as pd
from dash import Dash, Input, Output, State, dcc, html, no_update

from ffnprobe.errors import FfnProbeError
from ffnprobe.recipes import spell_token, write_recipe
from ffnprobe.results import TableSet
from ffnprobe.tracing.streams import name_streams
from ffnprobe.tracing.trace import Trace
from ffnprobe.views.explorer import evidence, forms
from ffnprobe.views.explorer.addresses import Address, name_token, read_address
from ffnprobe.views.explorer.blocks import (
    Component,
    Viewport,
    alert,
    chips,
    field,
    figure,
    is_untouched,
    link,
    read_viewport,
    section,
    table,
    words,
)
from ffnprobe.views.explorer.exports import Export, Live, bar, provenance_of
from ffnprobe.views.explorer.session import Session
from ffnprobe.views.plots import plot

TOKENS = 10
MAX_TEMPERATURE = 3.0
EXAMPLES = 6


def show(session: Session, address: Address, viewport: Viewport) -> Component:
    """Show a prompt, or ask for one."""
    if not address.has("prompt"):
        return _welcome(session, address)
    try:
        trace = session.trace(address)
    except FfnProbeError as error:
        form = forms.prompt_form(session, address, None)
        return html.Div([html.H1("What does the model predict next?"), form, alert(error)])
    return html.Div(
        [
            html.H1(_title(trace)),
            forms.prompt_form(session, address, trace),
            *forms.spelling_note(session, address),
            _tokens(address, trace),
            _next(address, trace, viewport),
            _lens(session, address, trace, viewport),
            evidence.panel(session, address, viewport),
            bar(),
        ]
    )


def _title(trace: Trace) -> str:
    return f"{trace.predictions(1).token[0]} comes next"


def _welcome(session: Session, address: Address) -> Component:
    about = (
        "Type the beginning of a sentence. The explorer shows which token the model predicts next, which "
        "neurons pushed it, and what happens without them."
    )
    rows: list[Component] = []
    seen: set[str] = set()
    for row in session.facts.rows:
        if row.relation not in seen and len(rows) < EXAMPLES:
            seen.add(row.relation)
            rows.append(html.Li(link(row.prompt, address.to("/", prompt=row.prompt))))
    return html.Div(
        [
            html.H1("What does the model predict next, and why?"),
            words(about),
            forms.prompt_form(session, address, None),
            section("Or start with one of these", html.Ul(rows)),
        ]
    )


def _tokens(address: Address, trace: Trace) -> Component:
    chosen = trace.at(int(address.number("position", -1)))
    hrefs = [address.here(position=order) for order in range(len(trace))]
    said = "What the model reads. Click a token to see the prediction at it."
    return section("Tokens", chips(trace.tokens, hrefs=hrefs, current=chosen), words(said, is_soft=True))  # fmt: skip


def _next(address: Address, trace: Trace, viewport: Viewport) -> Component:
    temperature = address.number("temperature", 1.0)
    slider = dcc.Input(
        id="temperature", type="range", min=0.05, max=MAX_TEMPERATURE, step=0.05, value=temperature
    )
    return section(
        "What comes next",
        dcc.Store(id="first", data=temperature),
        field("Temperature", slider, hint="Below 1 likely tokens become likelier, above 1 less likely."),
        html.Div(_predictions(address, trace, temperature, viewport), id="predictions", **{"aria-live": "polite"}),
    )  # fmt: skip


def _predictions(
    address: Address, trace: Trace, temperature: float, viewport: Viewport
) -> list[Component]:
    k, position = min(TOKENS, len(trace.model.vocab)), int(address.number("position", -1))
    found = trace.predictions(k, temperature=temperature, position=position)
    drawn = plot(trace, "predictions", top=k, temperature=temperature, position=position)
    whole = table(
        found.drop(columns="id"),
        caption=f"the {k} likeliest next tokens at temperature {temperature:g}",
        links={"token": _answers(address, trace, found)},
    )
    said = "Click a token to see why the model predicts it."
    return [
        html.P(html.Output(f"temperature {temperature:g}")),
        html.Div([whole, figure(drawn, viewport)], className="pair"),
        words(said, is_soft=True),
    ]


def _answers(address: Address, trace: Trace, found: pd.DataFrame) -> list[Component]:
    """Make each token a link that explains it as the answer."""
    model = trace.model
    return [
        link(
            shown,
            address.here(**name_token("answer", spell_token(model, int(token)))),
            is_near=True,
        )
        for shown, token in zip(found.token, found.id, strict=True)
    ]


def _lens(session: Session, address: Address, trace: Trace, viewport: Viewport) -> Component:
    said = (
        "The logit lens: what the model would predict if it ended after this layer. Only the last row is its real prediction. "
        "Click a cell, or choose a layer below and a token above, to see the likeliest tokens there."
    )
    after, position = address.text("after"), trace.at(int(address.number("position", -1)))
    stages = [
        link(stage, address.here(after=stage, position=position), is_near=True, className="chip",
             **({"aria-current": "true"} if stage == after else {}))
        for stage in name_streams(session.model)
    ]  # fmt: skip
    parts = [
        words(said),
        figure(session.lens(trace), viewport, name="lens"),
        html.P(["after ", *stages]),
    ]
    if after:
        k = min(TOKENS, len(session.model.vocab))
        try:
            found = trace.predictions(k, position=position, after=after)
            caption = f"the likeliest tokens after {after} at {trace.tokens[position]} (position {position})"
            parts.append(
                html.Div([html.H3(caption), table(found.drop(columns="id"), caption=caption)])
            )
        except FfnProbeError as error:
            parts.append(alert(error))
    return section("What each layer predicts", *parts)


def gather(session: Session, address: Address, live: Live) -> Export:
    """Gather the evidence known so far, else the predictions."""
    trace = session.trace(address)
    temperature = float(live.sliders.get("temperature", address.number("temperature", 1.0)))
    position, k = int(address.number("position", -1)), min(10, len(session.model.vocab))
    predictions = trace.predictions(k, temperature=temperature, position=position)
    tables = {"predictions": predictions}
    if address.text("after"):
        tables["lens"] = trace.predictions(k, position=position, after=address.text("after"))
    question = session.question(address)
    explanation = None if question.answer is None else session.explanation(question)
    running = (
        session.jobs.find(live.job.get("name"))
        if live.job.get("question") == question.name
        else None
    )
    if explanation is None and running is not None:
        explanation = running.found
    if explanation is None:
        result = TableSet("predictions", tables, provenance_of(predictions))
        return Export(
            "prompt", result, tables, write_recipe(trace, shown={"temperature": temperature})
        )
    return Export(
        "explanation",
        explanation,
        explanation.tables() | tables,
        write_recipe(explanation, page=True),
    )


def register(app: Dash, session: Session) -> None:
    """Register the slider."""

    def warm(
        moved: float | str | None, first: float, live: object, path: str, search: str, screen: object
    ) -> tuple[object, object]:  # fmt: skip
        if moved is None or is_untouched(value := float(moved), first, live):
            return no_update, no_update
        address = read_address(path, search)
        trace = session.trace(address)
        panel = _predictions(address, trace, value, read_viewport(screen))
        return panel, {"temperature": value}

    app.callback(
        Output("predictions", "children"), Output("live", "data", allow_duplicate=True),
        Input("temperature", "value"), State("first", "data"), State("live", "data"),
        State("location", "pathname"), State("location", "search"), State("screen", "data"),
        prevent_initial_call=True,
    )(warm)  # fmt: skip

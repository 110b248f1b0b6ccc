"""The page of a prompt: its tokens, the prediction, the logit lens, and why."""

from typing import Any

import pandas as pd
from dash import Dash, Input, Output, State, ctx, dcc, html, no_update

from ffnprobe.errors import FfnProbeError
from ffnprobe.evidence.explanation import Explanation
from ffnprobe.recipes import spell_token, write_recipe
from ffnprobe.results import TableSet
from ffnprobe.tracing.trace import Trace, name_streams
from ffnprobe.views.explorer import forms
from ffnprobe.views.explorer.addresses import Address, name_token, read_address
from ffnprobe.views.explorer.components import (
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
    show_blocks,
    table,
    words,
)
from ffnprobe.views.explorer.exports import Export, Live, bar, provenance_of
from ffnprobe.views.explorer.session import AskedPrompt, Job, Session
from ffnprobe.views.figures import plot

# MERGED: ffnprobe.views.explorer.evidence
# Why this answer: the evidence as it comes in, with its progress and a button to cancel.


TICK = 300  # milliseconds between two polls of the background work


def panel(session: Session, address: Address, viewport: Viewport) -> Component:
    """Lay out where the evidence is shown, or offer to gather it."""
    question = session.question(address)
    if question.answer is None:
        return section("Why?", *_offer(session, address), name="why")
    explanation = session.explanation(question)
    known = [] if explanation is None else _tell(explanation, address, viewport)
    bar = html.Div(
        [
            html.Div(id="progress", role="status"),
            html.Button("Cancel", id="cancel", n_clicks=0, hidden=True),
            html.Button("Measure the effects", id="again", n_clicks=0, hidden=True),
        ],
        className="row",
    )
    return section(
        f"Why {_name(session, question)}?",
        # The browser starts the work, so that only a page somebody sees is computed.
        dcc.Store(id="question", data=question.name),
        # It ticks once, and again when told to, so that two polls never overlap.
        dcc.Interval(id="tick", interval=TICK, max_intervals=0),
        bar,
        html.Div(known, id="evidence"),
        name="why",
    )


def _offer(session: Session, address: Address) -> list[Component]:
    trace = session.trace(address)
    first = trace.predictions(1)
    token = spell_token(session.model, int(first.id[0]))
    href = address.here(**name_token("answer", token), after=None)
    return [
        html.P(
            [
                "Choose an answer above, or ask about the model's own: ",
                link(["why ", html.Code(str(first.token[0])), "?"], href, is_near=True),
            ]
        )
    ]


def _name(session: Session, question: AskedPrompt) -> str:
    """Write the answer and its rival as shown tokens; errors in them are shown later."""

    def show(token: str | int) -> str:
        vocab = session.model.vocab
        try:
            ids = [token] if isinstance(token, int) else vocab.pieces(token)
            return "".join(vocab.show_all(ids))
        except (FfnProbeError, OverflowError):
            return str(token)

    than = "" if question.versus is None else f" rather than {show(question.versus)}"
    return f"{show(question.answer or '')}{than}"


def _tell(explanation: Explanation, address: Address, viewport: Viewport) -> list[Component]:
    return show_blocks(explanation.document(), address, viewport)


def register_evidence(app: Dash, session: Session) -> None:
    """Register the work behind a question: start, poll, cancel."""

    def start(
        asked: str | None, again: int, job: dict[str, Any] | None, ticks: int | None,
        path: str | None, search: str | None,
    ) -> Any:  # fmt: skip
        question = session.question(read_address(path, search))
        if asked != question.name:
            return (no_update,) * 4
        before, is_again = job or {}, ctx.triggered_id == "again" and bool(again)
        one_more = (ticks or 0) + 1
        fresh: dict[str, Any] = {"question": asked, "name": None, "done": False}
        if session.explanation(question) is not None:
            return fresh, 0, [], True
        if (
            before.get("question") == asked
            and not is_again
            and session.jobs.find(before.get("name"))
        ):
            # The same page drawn again: a running job keeps running, a stopped one stays stopped.
            return {**fresh, "name": before["name"]}, one_more, no_update, no_update
        session.jobs.cancel(before.get("name"))
        try:
            name = session.start_explaining(question).name
        except FfnProbeError as error:
            return fresh, 0, alert(error), True
        return {**fresh, "name": name}, one_more, "measuring …", False

    app.callback(
        Output("job", "data"), Output("tick", "max_intervals"), Output("progress", "children"),
        Output("cancel", "hidden"),
        Input("question", "data"), Input("again", "n_clicks"), State("job", "data"),
        State("tick", "n_intervals"), State("location", "pathname"), State("location", "search"),
    )(start)  # fmt: skip

    def follow(
        ticks: int | None, job: dict[str, Any] | None, asked: str | None, path: str | None,
        search: str | None, screen: object,
    ) -> Any:  # fmt: skip
        address, viewport = read_address(path, search), read_viewport(screen)
        question = session.question(address)
        if job is None or not job["question"] == asked == question.name:
            return (no_update,) * 6
        found = session.jobs.find(job["name"])
        if found is None:
            # The job was dropped: the result may be in the cache, else it can be asked for again.
            whole = session.explanation(question)
            told = _tell(whole, address, viewport) if whole else no_update
            return told, "", no_update, True, whole is not None, no_update
        told = no_update if found.found is None else _tell(found.found, address, viewport)
        return (
            told, _progress(found), (ticks or 0) + (not found.is_over), found.is_over,
            found.state != "cancelled", {**job, "done": True} if found.is_over else no_update,
        )  # fmt: skip

    app.callback(
        Output("evidence", "children"),
        Output("progress", "children", allow_duplicate=True),
        Output("tick", "max_intervals", allow_duplicate=True),
        Output("cancel", "hidden", allow_duplicate=True), Output("again", "hidden"),
        Output("job", "data", allow_duplicate=True),  # by which the export bar knows that it is there
        Input("tick", "n_intervals"), State("job", "data"), State("question", "data"),
        State("location", "pathname"), State("location", "search"), State("screen", "data"),
        prevent_initial_call=True,
    )(follow)  # fmt: skip

    def cancel(clicks: int, job: dict[str, Any] | None) -> Any:
        if clicks:
            session.jobs.cancel((job or {}).get("name"))
        return no_update

    app.callback(
        Output("cancel", "disabled"), Input("cancel", "n_clicks"), State("job", "data"),
        prevent_initial_call=True,
    )(cancel)  # fmt: skip


def _progress(job: Job) -> Component:
    """Show how far the work is."""
    if job.error is not None:
        return alert(job.error)
    if job.state == "cancelled":
        return "cancelled."
    if job.is_over:
        return ""
    if not job.total:
        return "waiting …" if job.state == "waiting" else "measuring …"
    bar = html.Progress(value=str(job.done), max=str(job.total), **{"aria-label": "steps done"})
    return html.Span([bar, f" step {job.done + 1} of {job.total}"])


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
            panel(session, address, viewport),
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
    """Register the slider and the evidence."""
    register_evidence(app, session)

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

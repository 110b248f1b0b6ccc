"""The page of a prompt: its tokens, the prediction, the logit lens, and why.

The evidence for an answer is gathered in the background: shown as it comes in, with its progress and a
button to cancel.
"""

from typing import Any

from dash import Dash, Input, Output, State, ctx, dcc, html, no_update

from ffnprobe.errors import FfnProbeError
from ffnprobe.recipes import spell_token, write_recipe
from ffnprobe.results import TableSet, as_result
from ffnprobe.tracing.trace import Trace, name_streams
from ffnprobe.views.explorer import components as ui
from ffnprobe.views.explorer.addresses import Address, name_token, read_address
from ffnprobe.views.explorer.components import Component, Parts, Viewport
from ffnprobe.views.explorer.exports import Export, Live, bar
from ffnprobe.views.explorer.session import TICK, AskedPrompt, Job, Session
from ffnprobe.views.figures import plot

TOKENS = 10
MAX_TEMPERATURE = 3.0
EXAMPLES = 6


def show(session: Session, address: Address, viewport: Viewport) -> Component:
    if not address.has("prompt"):
        return _welcome(session, address)
    try:
        trace = session.trace(address)
    except FfnProbeError as error:
        form = ui.prompt_form(session, address, None)
        return ui.page("What does the model predict next?", form, ui.alert(error))
    about = "What the model reads. Click a token to see the prediction at it."
    chips = ui.chips(trace.tokens, address=address, current=trace.at(address.position))
    return ui.page(
        f"{trace.predictions(1).token[0]} comes next",
        ui.prompt_form(session, address, trace),
        *_note_spelling(session, address),
        ui.section("Tokens", chips, ui.words(about, is_soft=True)),
        _show_next(address, trace, viewport),
        _show_lens(session, address, trace, viewport),
        _show_why(session, address, trace, viewport),
        bar(),
    )


def _welcome(session: Session, address: Address) -> Component:
    about = (
        "Type the beginning of a sentence. The explorer shows which token the model predicts next, which "
        "neurons pushed it, and what happens without them."
    )
    prompts: dict[str, str] = {}  # the first of each relation
    for row in session.facts.rows:
        prompts.setdefault(row.relation, row.prompt)
    first = list(prompts.values())[:EXAMPLES]
    examples = [html.Li(ui.link(prompt, address.to("/", prompt=prompt))) for prompt in first]
    return ui.page(
        "What does the model predict next, and why?",
        ui.words(about),
        ui.prompt_form(session, address, None),
        ui.section("Or start with one of these", html.Ul(examples)),
    )


def _note_spelling(session: Session, address: Address) -> list[Component]:
    """Note that the leading space of an answer may be missing."""
    answer, vocab = address.text("answer"), session.model.vocab
    if not answer or answer.startswith(" ") or len(vocab.pieces(f" {answer}")) != 1:
        return []
    spaced = ui.link(html.Code(f'" {answer}"'), address.here(answer=f" {answer}"), is_near=True)
    return [html.P(["With a leading space it is a different token: ", spaced], className="soft")]


def _show_next(address: Address, trace: Trace, viewport: Viewport) -> Component:
    temperature = address.number("temperature", 1.0)
    slider = dcc.Input(
        id="temperature", type="range", min=0.05, max=MAX_TEMPERATURE, step=0.05, value=temperature
    )
    return ui.section(
        "What comes next",
        dcc.Store(id="first", data=temperature),
        ui.field("Temperature", slider, hint="Below 1 likely tokens become likelier, above 1 less likely."),
        html.Div(_show_tokens(address, trace, temperature, viewport), id="predictions", **{"aria-live": "polite"}),
    )  # fmt: skip


def _show_tokens(address: Address, trace: Trace, temperature: float, viewport: Viewport) -> Parts:
    k, position = min(TOKENS, len(trace.model.vocab)), address.position
    likeliest = trace.predictions(k, temperature=temperature, position=position)
    drawn = plot(trace, "predictions", top=k, temperature=temperature, position=position)
    pairs = zip(likeliest.token, likeliest.id, strict=True)
    links = [
        ui.link(shown, _ask_why(address, trace, token), is_near=True) for shown, token in pairs
    ]
    caption = f"the {k} likeliest next tokens at temperature {temperature:g}"
    listed = ui.table(likeliest.drop(columns="id"), caption=caption, links={"token": links})
    return [
        html.P(html.Output(f"temperature {temperature:g}")),
        html.Div([listed, ui.figure(drawn, viewport)], className="pair"),
        ui.words("Click a token to see why the model predicts it.", is_soft=True),
    ]


def _ask_why(address: Address, trace: Trace, token: int, **changes: None) -> str:
    """Return the address that explains a token as the answer."""
    return address.here(**name_token("answer", spell_token(trace.model, int(token))), **changes)


def _show_lens(session: Session, address: Address, trace: Trace, viewport: Viewport) -> Component:
    about = (
        "The logit lens: what the model would predict if it ended after this layer. Only the last row is its real prediction. "
        "Click a cell, or choose a layer below and a token above, to see the likeliest tokens there."
    )
    after, position = address.text("after"), trace.at(address.position)
    stages = [
        ui.link(stage, address.here(after=stage, position=position), is_near=True,
                is_current=stage == after, className="chip")
        for stage in name_streams(session.model)
    ]  # fmt: skip
    key = ("lens", trace.ids, trace.has_bos)
    drawn = session.cache.get_or_make(key, lambda: plot(trace, "lens"))
    grid = ui.figure(drawn, viewport, name="lens")
    parts = [ui.words(about), grid, html.P(["after ", *stages])]
    if after:
        k = min(TOKENS, len(session.model.vocab))
        try:
            likeliest = trace.predictions(k, position=position, after=after).drop(columns="id")
            caption = f"the likeliest tokens after {after} at {trace.tokens[position]} (position {position})"
            parts.append(html.Div([html.H3(caption), ui.table(likeliest, caption=caption)]))
        except FfnProbeError as error:
            parts.append(ui.alert(error))
    return ui.section("What each layer predicts", *parts)


def _show_why(session: Session, address: Address, trace: Trace, viewport: Viewport) -> Component:
    """Lay out where the evidence is shown, or offer to gather it."""
    question = session.question(address)
    if question.answer is None:
        first = trace.predictions(1)
        why = ["why ", html.Code(str(first.token[0])), "?"]
        own = ui.link(why, _ask_why(address, trace, first.id[0], after=None), is_near=True)
        offer = html.P(["Choose an answer above, or ask about the model's own: ", own])
        return ui.section("Why?", offer, name="why")
    explanation = session.explanation(question)
    document = [] if explanation is None else explanation.document()
    evidence = ui.show_blocks(document, address, viewport)
    progress = [
        html.Div(id="progress", role="status"),
        html.Button("Cancel", id="cancel", n_clicks=0, hidden=True),
        html.Button("Measure the effects", id="again", n_clicks=0, hidden=True),
    ]
    return ui.section(
        f"Why {_name_answer(session, question)}?",
        # The browser starts the work, so that only a page somebody sees is computed.
        dcc.Store(id="question", data=repr(question)),
        # It ticks once, and again when told to, so that two polls never overlap.
        dcc.Interval(id="tick", interval=TICK, max_intervals=0),
        html.Div(progress, className="row"),
        html.Div(evidence, id="evidence"),
        name="why",
    )


def _name_answer(session: Session, question: AskedPrompt) -> str:
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


def _show_progress(job: Job) -> Component:
    if job.error is not None:
        return ui.alert(job.error)
    if job.state == "cancelled":
        return "cancelled."
    if job.is_over:
        return ""
    if not job.total:
        return "waiting …" if job.state == "waiting" else "measuring …"
    bar = html.Progress(value=str(job.done), max=str(job.total), **{"aria-label": "steps done"})
    return html.Span([bar, f" step {job.done + 1} of {job.total}"])


def gather(session: Session, address: Address, live: Live) -> Export:
    """Gather the evidence known so far, else the predictions."""
    trace = session.trace(address)
    temperature = float(live.sliders.get("temperature", address.number("temperature", 1.0)))
    position, k = address.position, min(TOKENS, len(session.model.vocab))
    predictions = trace.predictions(k, temperature=temperature, position=position)
    tables = {"predictions": predictions}
    if address.text("after"):
        tables["lens"] = trace.predictions(k, position=position, after=address.text("after"))
    question = session.question(address)
    explanation = None if question.answer is None else session.explanation(question)
    if explanation is None and live.job.get("question") == repr(question):
        job = session.jobs.find(live.job.get("name"))
        explanation = None if job is None else job.result
    if explanation is None:
        result = TableSet("predictions", tables, as_result(predictions).provenance)
        recipe = write_recipe(trace, shown={"temperature": temperature})
        return Export("prompt", result, tables, recipe)
    tables = explanation.tables() | tables
    return Export("explanation", explanation, tables, write_recipe(explanation, page=True))


def register(app: Dash, session: Session) -> None:
    def warm(address: Address, temperature: float, viewport: Viewport) -> list[Component]:
        return _show_tokens(address, session.trace(address), temperature, viewport)

    ui.follow_slider(app, "temperature", "predictions", warm)

    def start(
        asked: str | None, again: int, job: dict[str, Any] | None, ticks: int | None,
        path: str | None, search: str | None,
    ) -> Any:  # fmt: skip
        question = session.question(read_address(path, search))
        if asked != repr(question):
            return (no_update,) * 4
        before, is_again = job or {}, ctx.triggered_id == "again" and bool(again)
        one_more = (ticks or 0) + 1
        fresh: dict[str, Any] = {"question": asked, "name": None, "done": False}
        if session.explanation(question) is not None:
            return fresh, 0, [], True
        name = before.get("name")
        if before.get("question") == asked and not is_again and session.jobs.find(name):
            # The same page drawn again: a running job keeps running, a stopped one stays stopped.
            return {**fresh, "name": name}, one_more, no_update, no_update
        session.jobs.cancel(name)
        try:
            name = session.start_explaining(question).name
        except FfnProbeError as error:
            return fresh, 0, ui.alert(error), True
        return {**fresh, "name": name}, one_more, "measuring …", False

    app.callback(
        Output("job", "data"), Output("tick", "max_intervals"), Output("progress", "children"),
        Output("cancel", "hidden"),
        Input("question", "data"), Input("again", "n_clicks"), State("job", "data"),
        State("tick", "n_intervals"), *ui.PLACE,
    )(start)  # fmt: skip

    def follow(
        ticks: int | None, job: dict[str, Any] | None, asked: str | None, path: str | None,
        search: str | None, screen: object,
    ) -> Any:  # fmt: skip
        address, viewport = read_address(path, search), ui.read_viewport(screen)
        question = session.question(address)
        if job is None or not job["question"] == asked == repr(question):
            return (no_update,) * 6
        running = session.jobs.find(job["name"])
        # If the job was dropped, the result may be in the cache, else it can be asked for again.
        explanation = session.explanation(question) if running is None else running.result
        evidence = no_update
        if explanation is not None:
            evidence = ui.show_blocks(explanation.document(), address, viewport)
        if running is None:
            return evidence, "", no_update, True, explanation is not None, no_update
        return (
            evidence, _show_progress(running), (ticks or 0) + (not running.is_over), running.is_over,
            running.state != "cancelled", {**job, "done": True} if running.is_over else no_update,
        )  # fmt: skip

    app.callback(
        Output("evidence", "children"),
        Output("progress", "children", allow_duplicate=True),
        Output("tick", "max_intervals", allow_duplicate=True),
        Output("cancel", "hidden", allow_duplicate=True), Output("again", "hidden"),
        Output("job", "data", allow_duplicate=True),  # by which the export bar knows that it is there
        Input("tick", "n_intervals"), State("job", "data"), State("question", "data"), *ui.HERE,
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

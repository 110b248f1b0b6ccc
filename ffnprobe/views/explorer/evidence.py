"""Why this answer: the evidence as it comes in, with its progress and a button to cancel."""

from typing import Any

from dash import Dash, Input, Output, State, ctx, dcc, html, no_update

from ffnprobe.errors import FfnProbeError
from ffnprobe.evidence.explanation import Explanation
from ffnprobe.recipes import spell_token
from ffnprobe.views.explorer.addresses import Address, name_token, read_address
from ffnprobe.views.explorer.blocks import (
    Component,
    Viewport,
    alert,
    link,
    read_viewport,
    section,
    show_blocks,
)
from ffnprobe.views.explorer.jobs import Job
from ffnprobe.views.explorer.session import AskedPrompt, Session

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


def register(app: Dash, session: Session) -> None:
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

"""Why this answer: the evidence as it comes in, with the way it has still to go and a way to stop it."""

from collections.abc import Callable
from typing import Any

from dash import Dash, Input, Output, State, ctx, dcc, html, no_update

from ffnprobe.errors import FfnProbeError
from ffnprobe.evidence.explanation import Explanation
from ffnprobe.views.explorer.blocks import (
    Component,
    Look,
    alert,
    chips,
    figure,
    link,
    neuron_link,
    read_look,
    section,
    table,
    words,
)
from ffnprobe.views.explorer.desk import Desk, Question
from ffnprobe.views.explorer.jobs import Job
from ffnprobe.views.explorer.places import Place, name_token, read_place
from ffnprobe.views.plots import plot
from ffnprobe.views.recipes import spell_token

TICK = 300  # milliseconds between two looks at work in the background
SAID = (
    "Three kinds of evidence stand side by side, since each misleads alone: what the weights promote (z), "
    "what the neuron pushed here, and what the answer loses when it is removed (effect). A: all three, "
    "B: two, C: one. Names lead to the neurons."
)


def panel(desk: Desk, place: Place, look: Look) -> Component:
    """Hold the places where the evidence comes in, or offer to gather it."""
    question = desk.question(place)
    if question[2] is None:
        return section("Why?", *_offer(desk, place), name="why")
    explanation = desk.explanation(question)
    known = (
        {}
        if explanation is None
        else {part: show(explanation, place, look) for part, show in PARTS.items()}
    )
    bar = html.Div(
        [
            html.Div(id="progress", role="status"),
            html.Button("Cancel", id="cancel", n_clicks=0, hidden=True),
            html.Button("Measure the effects", id="again", n_clicks=0, hidden=True),
        ],
        className="row",
    )
    return section(
        f"Why {_name(desk, question)}?",
        # What starts the work is in the browser, so that only a page somebody sees is computed.
        dcc.Store(id="question", data=list(question)),
        # It ticks once, and again when it is told to: no two looks at the work at a time.
        dcc.Interval(id="tick", interval=TICK, max_intervals=0),
        words(SAID),
        bar,
        *(html.Div(known.get(part, []), id=part) for part in PARTS),
        name="why",
    )


def _offer(desk: Desk, place: Place) -> list[Component]:
    trace = desk.trace(place)
    first = trace.predictions(1)
    token = spell_token(desk.model, int(first.id[0]))
    href = place.here(**name_token("answer", token), after=None)
    return [
        html.P(
            [
                "Choose an answer above, or ask for the model's own: ",
                link(["why ", html.Code(str(first.token[0])), "?"], href, is_near=True),
            ]
        )
    ]


def _name(desk: Desk, question: Question) -> str:
    """Write the answer and its rival as tokens are shown; what is wrong with them is said later."""

    def show(token: str | int) -> str:
        vocab = desk.model.vocab
        try:
            ids = [token] if isinstance(token, int) else vocab.pieces(token)
            return "".join(vocab.show_all(ids))
        except (FfnProbeError, OverflowError):
            return str(token)

    _, _, answer, versus = question
    than = "" if versus is None else f" rather than {show(versus)}"
    return f"{show(answer or '')}{than}"


def _neurons(explanation: Explanation, place: Place, look: Look) -> list[Component]:
    shown = explanation.neurons.drop(columns=["layer", "neuron", "position"])
    names = [neuron_link(place, name) for name in shown.name]
    return [table(shown, caption=f"the neurons behind {explanation.title}", links={"name": names})]


def _map(explanation: Explanation, place: Place, look: Look) -> list[Component]:
    if explanation.map is None:
        return []
    by_position = explanation.map.groupby("position").effect.sum().tolist()
    said = "Colour: what the answer loses without the MLP layers at a token, added up (blue: they help)."
    return [
        html.H3("Where the MLP layers matter"),
        figure(plot(explanation, "map"), look),
        chips(explanation.trace.tokens, by_position),
        words(said, is_soft=True),
    ]


def _carriers(explanation: Explanation, place: Place, look: Look) -> list[Component]:
    return [
        html.H3("Who carries the answer's logit"),
        figure(plot(explanation, "account"), look),
        figure(plot(explanation, "layers"), look),
    ]


def _together(explanation: Explanation, place: Place, look: Look) -> list[Component]:
    if explanation.together is None:
        return []
    shown = explanation.together.drop(columns="position")
    return [
        figure(plot(explanation, "evidence"), look),
        html.H3("Without all of them at once"),
        table(shown, caption="removed at once, beside random neurons"),
        words(f"{explanation.provenance.describe()}.", is_soft=True),
    ]


PARTS: dict[str, Callable[[Explanation, Place, Look], list[Component]]] = {
    "evidence": _neurons,
    "map": _map,
    "carriers": _carriers,
    "together": _together,
}


def register(app: Dash, desk: Desk) -> None:
    """Start, watch and stop the work behind a question."""

    def start(
        asked: list[Any] | None, again: int, job: dict[str, Any] | None, ticks: int | None
    ) -> Any:
        if not asked:
            return (no_update,) * 4
        bos = None if asked[1] is None else bool(asked[1])
        question = (str(asked[0]), bos, asked[2], asked[3])
        before, is_again = job or {}, ctx.triggered_id == "again" and bool(again)
        one_more = (ticks or 0) + 1
        fresh = {"question": asked, "name": None, "changes": 0, "shown": []}
        if desk.explanation(question) is not None:
            return fresh, 0, [], True
        if before.get("question") == asked and not is_again and desk.jobs.find(before.get("name")):
            # The same page drawn anew: what is running goes on, what was stopped stays so.
            return {**fresh, "name": before["name"]}, one_more, no_update, no_update
        desk.jobs.cancel(before.get("name"))
        try:
            name = desk.ask(question).name
        except FfnProbeError as error:
            return fresh, 0, alert(error), True
        return {**fresh, "name": name}, one_more, "measuring …", False

    app.callback(
        Output("job", "data"), Output("tick", "max_intervals"), Output("progress", "children"),
        Output("cancel", "hidden"),
        Input("question", "data"), Input("again", "n_clicks"), State("job", "data"),
        State("tick", "n_intervals"),
    )(start)  # fmt: skip

    def follow(
        ticks: int, job: dict[str, Any] | None, asked: list[Any], path: str, search: str, screen: object
    ) -> Any:  # fmt: skip
        if job is None or job.get("question") != asked:
            return (no_update,) * (len(PARTS) + 5)
        place, look = read_place(path, search), read_look(screen)
        found = desk.jobs.find(job["name"])
        if found is None:
            # Forgotten meanwhile: the shelf may have it, else it can be asked for again.
            whole = desk.explanation((asked[0], asked[1], asked[2], asked[3]))
            told = [show(whole, place, look) if whole else no_update for show in PARTS.values()]
            return *told, "", no_update, True, whole is not None, no_update
        changes, is_over, explanation = found.changes, found.is_over, found.found
        parts: dict[str, object] = dict.fromkeys(PARTS, no_update)
        if changes != job["changes"] and explanation is not None:
            for part, show in PARTS.items():
                # Only the table grows on the way; the rest is drawn once, and at the end.
                if part == "evidence" or part not in job["shown"] or is_over:
                    parts[part] = show(explanation, place, look) or no_update
        drawn = [part for part, shown in parts.items() if shown is not no_update]
        after = {**job, "changes": changes, "shown": sorted({*job["shown"], *drawn})}
        return (
            *parts.values(), _progress(found), ticks if is_over else ticks + 1, is_over,
            found.state != "cancelled", after if after != job else no_update,
        )  # fmt: skip

    app.callback(
        *(Output(part, "children") for part in PARTS),
        Output("progress", "children", allow_duplicate=True),
        Output("tick", "max_intervals", allow_duplicate=True),
        Output("cancel", "hidden", allow_duplicate=True), Output("again", "hidden"),
        Output("job", "data", allow_duplicate=True),
        Input("tick", "n_intervals"), State("job", "data"), State("question", "data"),
        State("place", "pathname"), State("place", "search"), State("screen", "data"),
        prevent_initial_call=True,
    )(follow)  # fmt: skip

    def cancel(clicks: int, job: dict[str, Any] | None) -> Any:
        if clicks:
            desk.jobs.cancel((job or {}).get("name"))
        return no_update

    app.callback(
        Output("cancel", "disabled"), Input("cancel", "n_clicks"), State("job", "data"),
        prevent_initial_call=True,
    )(cancel)  # fmt: skip


def _progress(job: Job) -> Component:
    """Say how far the work is."""
    if job.error is not None:
        return alert(job.error)
    if job.state == "cancelled":
        return "cancelled: the effects shown are those measured so far."
    if job.is_over:
        return ""
    if not job.total:
        return "waiting …" if job.state == "waiting" else "measuring the layers …"
    share = f"effects of {job.done:,} of {job.total:,} neurons"
    bar = html.Progress(value=str(job.done), max=str(job.total), **{"aria-label": "effects measured"})  # fmt: skip
    return html.Span([bar, f" {share}"])

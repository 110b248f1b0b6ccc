"""What a page may send to the server: checked before Dash reads it, and not more than can be answered.

Dash takes a callback as it comes, and fails inside where its parts do not fit. Here each must name a
callback that there is, with its own inputs and values of the right kind; else it is refused in words.
If too many wait already, the page is told to ask again (`assets/script.js` does).
"""

from collections.abc import Callable
from threading import BoundedSemaphore
from typing import Any

from dash import Dash
from flask import Response, g, request
from werkzeug.exceptions import BadRequest

from ffnprobe.views.explorer.security import say

PATH = "/_dash-update-component"
# Two cores draw about twenty pages in the time that people wait for one.
WAITING = 20
MOST = 1e300
Check = Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not _is_flag(value) and abs(value) <= MOST


def _is_slider(value: Any) -> bool:
    """Say whether a value is a slider's: a number, or its text."""
    try:
        return _is_number(float(value) if isinstance(value, str) else value)
    except ValueError:
        return False


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not _is_flag(value) and 0 <= value < 2**53


def _is_job(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"question", "name", "done"}
        and _is_text(value["question"])
        and (value["name"] is None or _is_text(value["name"]))
        and _is_flag(value["done"])
    )


def _is_settings(value: Any) -> bool:
    return isinstance(value, dict) and all(_is_flag(v) or _is_number(v) for v in value.values())


# What each property is, if it is not null; those not named here are counts of clicks and ticks.
KINDS: dict[str, Check] = {
    **dict.fromkeys(
        ("location.pathname", "location.search", "question.data", "save-table.value", "saved.id",
         "survey-job.data"),
        _is_text,
    ),
    **dict.fromkeys(("temperature.value", "set.value", "many.value"), _is_slider),
    "first.data": _is_number,
    **dict.fromkeys(("screen.data", "live.data"), _is_settings),
    "job.data": _is_job,
    "surveying.data": _is_flag,
}  # fmt: skip


def check_callbacks(app: Dash) -> None:
    """Refuse callbacks that no page sends, and those beyond what can be answered."""
    room = BoundedSemaphore(WAITING)

    def admit() -> Response | None:
        if request.path != PATH or request.method != "POST":
            return None
        try:
            _check(app, request.get_json())
        except (BadRequest, RecursionError) as error:
            why = error.description if isinstance(error, BadRequest) else "it is nested too deeply."
            return say(f"this is not a callback of the explorer: {why}", 400)
        g.has_room = room.acquire(blocking=False)
        if g.has_room:
            return None
        reply = say("the explorer is busy: ask again in a second.", 503)
        reply.headers["Retry-After"] = "1"
        return reply

    def leave(error: BaseException | None) -> None:
        if g.pop("has_room", False):
            room.release()

    app.server.before_request(admit)
    app.server.teardown_request(leave)


def _check(app: Dash, body: Any) -> None:
    if not isinstance(body, dict):
        raise BadRequest("it is not an object.")
    output = body.get("output")
    known = app.callback_map.get(output) if isinstance(output, str) else None
    if known is None or "callback" not in known:
        raise BadRequest("its output is unknown.")
    assert isinstance(output, str)
    names = output.strip(".").split("...")
    outputs = body.get("outputs")
    is_fitting = isinstance(outputs, list) if len(names) > 1 else isinstance(outputs, dict)
    listed = outputs if isinstance(outputs, list) else [outputs]
    if not is_fitting or _name_all(listed) != [name.partition("@")[0] for name in names]:
        raise BadRequest('the list "outputs" does not match its output.')
    for part, wanted in (("inputs", known["inputs"]), ("state", known["state"])):
        given = body.get(part, [])
        if _name_all(given) != _name_all(wanted):
            raise BadRequest(f'the list "{part}" does not match its output.')
        for one in given:
            name, value = f"{one['id']}.{one['property']}", one.get("value")
            if value is not None and not KINDS.get(name, _is_count)(value):
                raise BadRequest(f"the value of {name} is of the wrong kind.")
    changed, inputs = body.get("changedPropIds", []), _name_all(known["inputs"]) or []
    if not isinstance(changed, list) or not all(name in inputs for name in changed):
        raise BadRequest("what changed is not among its inputs.")


def _name_all(props: Any) -> list[str] | None:
    """Name properties as id.property; None if they are not properties."""
    if not isinstance(props, list) or not all(isinstance(prop, dict) for prop in props):
        return None
    return [f"{p.get('id')}.{str(p.get('property')).partition('@')[0]}" for p in props]

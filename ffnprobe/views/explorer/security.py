"""Which requests the explorer answers: those of its user, from its own pages, to its own host.

Other users of the machine can connect to 127.0.0.1 too. So a request must have the access token: it is
in the address that is printed, and from the first visit on in a cookie that scripts and other sites
cannot use. A request must name a host of the explorer (`listening` says why), and a POST must come from
a page of the explorer. Replies forbid scripts, frames and requests of other origins.

Dash takes a callback as it comes, and fails inside where its parts do not fit. So each must name a
callback that there is, with its own inputs and values of the right kind; else it is refused in words.
If too many wait already, the page is told to ask again (`assets/script.js` does).

Flask's TRUSTED_HOSTS does not serve here: it cannot list an IPv6 address, compares case, and cannot
allow any numeric address when the explorer is bound to all of them.
"""

from collections.abc import Callable
from html import escape
from threading import BoundedSemaphore
from typing import Any
from urllib.parse import urlsplit

from dash import Dash
from flask import Response, g, request
from werkzeug.exceptions import BadRequest

from ffnprobe.listening import is_own_host, is_same_token, read_host
from ffnprobe.views.explorer.addresses import write_address

ACCESS = "access_token"
REQUEST_BYTES = 256 * 1024
PATH = "/_dash-update-component"
# Two cores draw about twenty pages in the time that people wait for one.
WAITING = 20
LARGEST = 1e300
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # The address holds the prompt: do not send it to other sites.
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
# What the explorer serves and, by hash, the scripts Dash writes into the page.
POLICY = (
    "default-src 'none'; script-src {}; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def guard(app: Dash, *, host: str, token: str | None) -> None:
    """Refuse requests no page of the user sends, and those beyond what can be answered; seal replies."""
    app.server.config["MAX_CONTENT_LENGTH"] = REQUEST_BYTES
    room = BoundedSemaphore(WAITING)

    def refuse() -> Response | None:
        if not is_own_host(read_host(request.host), bound=host):
            return say("this is not a host of the explorer.", 403)
        if token is not None and (stopped := _check_token(token)) is not None:
            return stopped
        length = request.headers.get("Content-Length", "0")
        if not (length.isascii() and length.isdecimal()):
            return say("Content-Length is not a number.", 400)
        if request.method not in ("GET", "HEAD"):
            origin = request.headers.get("Origin")
            site = request.headers.get("Sec-Fetch-Site", "same-origin")
            is_foreign = origin is not None and urlsplit(origin).netloc != request.host
            if is_foreign or site not in ("same-origin", "none"):
                return say("only a page of the explorer may send this request.", 403)
        return None

    def admit() -> Response | None:
        if request.path != PATH or request.method != "POST":
            return None
        try:
            _check_callback(app, request.get_json())
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

    def seal(response: Response) -> Response:
        response.headers.update(HEADERS)
        scripts = " ".join(["'self'", *app.csp_hashes()])
        response.headers["Content-Security-Policy"] = POLICY.format(scripts)
        if not request.path.startswith("/_dash-component-suites/"):
            response.headers["Cache-Control"] = "no-store"
        return response

    app.server.before_request(refuse)
    app.server.before_request(admit)
    app.server.teardown_request(leave)
    app.server.after_request(seal)


def say(text: str, status: int) -> Response:
    return Response(f"{text}\n", status, mimetype="text/plain")


def _check_token(token: str) -> Response | None:
    """Let a request with the token's cookie pass; set the cookie if the token is in the address."""
    # Browsers send a cookie to every port of a host, so its name has the port.
    cookie = f"ffnprobe-{request.environ['SERVER_PORT']}"
    typed = request.args.get(ACCESS)
    if typed is None and is_same_token(request.cookies.get(cookie, ""), token):
        return None
    if typed is None or request.method != "GET" or not is_same_token(typed, token):
        return say(
            "the explorer needs its access token: open the address that `ffnprobe explore` printed "
            "once in this browser.",
            403,
        )
    others = [pair for pair in request.args.items(multi=True) if pair[0] != ACCESS]
    clean = escape(write_address(f"/{request.path.lstrip('/')}", others))
    # Not a redirect: where another site linked here, a strict cookie is not sent along with one.
    page = f'<!DOCTYPE html><meta http-equiv="refresh" content="0; url={clean}"><a href="{clean}">to the explorer</a>'
    response = Response(page, mimetype="text/html")
    response.set_cookie(cookie, token, httponly=True, samesite="Strict")
    return response


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and bool(abs(value) <= LARGEST)


def _is_slider(value: Any) -> bool:
    """Say whether a value is a slider's: a number, or its text."""
    try:
        return _is_number(float(value) if isinstance(value, str) else value)
    except ValueError:
        return False


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**53


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
KINDS: dict[str, Callable[[Any], bool]] = {
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


def _check_callback(app: Dash, body: Any) -> None:
    if not isinstance(body, dict):
        raise BadRequest("it is not an object.")
    output = body.get("output")
    if not isinstance(output, str) or "callback" not in app.callback_map.get(output, {}):
        raise BadRequest("its output is unknown.")
    callback = app.callback_map[output]
    names = output.strip(".").split("...")
    outputs = body.get("outputs") if len(names) > 1 else [body.get("outputs")]
    if _name_all(outputs) != [name.partition("@")[0] for name in names]:
        raise BadRequest('the list "outputs" does not match its output.')
    for part in ("inputs", "state"):
        props = body.get(part, [])
        if _name_all(props) != _name_all(callback[part]):
            raise BadRequest(f'the list "{part}" does not match its output.')
        for prop in props:
            name, value = f"{prop['id']}.{prop['property']}", prop.get("value")
            if value is not None and not KINDS.get(name, _is_count)(value):
                raise BadRequest(f"the value of {name} is of the wrong kind.")
    changed, inputs = body.get("changedPropIds", []), _name_all(callback["inputs"]) or []
    if not isinstance(changed, list) or not all(name in inputs for name in changed):
        raise BadRequest("what changed is not among its inputs.")


def _name_all(props: Any) -> list[str] | None:
    """Name properties as id.property; None if they are not properties."""
    if not isinstance(props, list) or not all(isinstance(prop, dict) for prop in props):
        return None
    return [f"{p.get('id')}.{str(p.get('property')).partition('@')[0]}" for p in props]

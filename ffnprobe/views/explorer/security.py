"""Which requests the explorer answers: those of its user, from its own pages, to its own host.

Other users of the machine can connect to 127.0.0.1 too. So a request must have the access token: it is
in the address that is printed, and from the first visit on in a cookie that scripts and other sites
cannot use. A page of another site can make a browser send requests to 127.0.0.1, and a name that is
rebound to 127.0.0.1 can read the replies. So a request must name a host of the explorer, and a POST must
come from a page of the explorer. Replies forbid scripts, frames and requests of other origins.

Flask's TRUSTED_HOSTS does not serve here: it cannot list an IPv6 address, compares case, and cannot
allow any numeric address when the explorer is bound to all of them.
"""

from html import escape
from urllib.parse import urlsplit

from dash import Dash
from flask import Response, request

from ffnprobe.listening import is_own, is_same, read_host
from ffnprobe.views.explorer.addresses import write_address

ACCESS = "access_token"
REQUEST_BYTES = 256 * 1024
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # The address holds the prompt: do not send it to other sites.
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


def guard(app: Dash, *, host: str, token: str | None) -> None:
    """Refuse requests that are not the user's, from the explorer's own pages; add security headers."""
    app.server.config["MAX_CONTENT_LENGTH"] = REQUEST_BYTES

    def refuse() -> Response | None:
        if not is_own(read_host(request.host), bound=host):
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

    def seal(response: Response) -> Response:
        response.headers.update(HEADERS)
        response.headers["Content-Security-Policy"] = policy(app)
        if not request.path.startswith("/_dash-component-suites/"):
            response.headers["Cache-Control"] = "no-store"
        return response

    app.server.before_request(refuse)
    app.server.after_request(seal)


def say(text: str, status: int) -> Response:
    """Answer with a sentence."""
    return Response(f"{text}\n", status, mimetype="text/plain")


def _check_token(token: str) -> Response | None:
    """Let a request with the token's cookie pass; set the cookie if the token is in the address."""
    # Browsers send a cookie to every port of a host, so its name has the port.
    cookie = f"ffnprobe-{request.environ['SERVER_PORT']}"
    given = request.args.get(ACCESS)
    if given is None and is_same(request.cookies.get(cookie, ""), token):
        return None
    if given is None or request.method != "GET" or not is_same(given, token):
        return say(
            "the explorer needs its access token: open the address that `ffnprobe explore` printed "
            "once in this browser.",
            403,
        )
    kept = [pair for pair in request.args.items(multi=True) if pair[0] != ACCESS]
    clean = escape(write_address(f"/{request.path.lstrip('/')}", kept))
    # Not a redirect: where another site linked here, a strict cookie is not sent along with one.
    page = f'<!DOCTYPE html><meta http-equiv="refresh" content="0; url={clean}"><a href="{clean}">to the explorer</a>'
    response = Response(page, mimetype="text/html")
    response.set_cookie(cookie, token, httponly=True, samesite="Strict")
    return response


def policy(app: Dash) -> str:
    """Allow what the explorer serves and, by hash, the scripts Dash writes into the page."""
    scripts = " ".join(["'self'", *app.csp_hashes()])
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )

"""Which requests the explorer answers: only those of its own pages, to its own host.

A page of another site can make a browser send requests to 127.0.0.1, and a name that is rebound to
127.0.0.1 can read the replies. So a request must name a host of the explorer, and a POST must
come from a page of the explorer. Replies forbid scripts, frames and requests of other origins.

Flask's TRUSTED_HOSTS does not serve here: it cannot list an IPv6 address, compares case, and cannot
allow any numeric address when the explorer is bound to all of them.
"""

import ipaddress
import socket
from typing import Any
from urllib.parse import urlsplit

from dash import Dash
from flask import Response, request

REQUEST_BYTES = 256 * 1024
LOCAL = frozenset(("127.0.0.1", "localhost", "::1"))
WILDCARDS = frozenset(("0.0.0.0", "::"))
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # The address holds the prompt: do not send it to other sites.
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


def guard(app: Dash, *, host: str) -> None:
    """Refuse requests that are not from the explorer's own pages, and add security headers."""
    app.server.config["MAX_CONTENT_LENGTH"] = REQUEST_BYTES

    def refuse() -> Any:
        named = read_host(request.host)
        if not is_own(named, bound=host):
            return Response("this is not a host of the explorer.\n", 403, mimetype="text/plain")
        if request.method not in ("GET", "HEAD"):
            origin = request.headers.get("Origin")
            site = request.headers.get("Sec-Fetch-Site", "same-origin")
            is_foreign = origin is not None and urlsplit(origin).netloc != request.host
            if is_foreign or site not in ("same-origin", "none"):
                return Response("only a page of the explorer may send this request.\n", 403, mimetype="text/plain")  # fmt: skip
        return None

    def seal(response: Response) -> Response:
        response.headers.update(HEADERS)
        response.headers["Content-Security-Policy"] = policy(app)
        if not request.path.startswith("/_dash-component-suites/"):
            response.headers["Cache-Control"] = "no-store"
        return response

    app.server.before_request(refuse)
    app.server.after_request(seal)


def policy(app: Dash) -> str:
    """Allow what the explorer serves and, by hash, the scripts Dash writes into the page."""
    scripts = " ".join(["'self'", *app.csp_hashes()])
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def read_host(header: str) -> str:
    """Return the name in a Host header, without the port, which a tunnel may change."""
    try:
        return (urlsplit(f"//{header}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def is_own(named: str, *, bound: str) -> bool:
    """Say whether a host is the explorer's own: this machine, or the host it is bound to.

    >>> is_own("localhost", bound="127.0.0.1"), is_own("evil.example", bound="127.0.0.1")
    (True, False)
    """
    if named in LOCAL or named == bound:
        return True
    if bound not in WILDCARDS:
        return False
    # Bound to all addresses: a numeric address can only be this machine, a name could be rebound.
    return _is_address(named) or named in {socket.gethostname().lower(), socket.getfqdn().lower()}


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True

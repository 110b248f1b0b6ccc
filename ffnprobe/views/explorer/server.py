"""The app and its server: five pages, chosen by the address, the frame around them, a bound port.

Each connection has a thread, and their number is bounded: beyond it the connection that has sent no
request for longest is closed, and if all have sent one, the new one is told to come back. A
connection that sends nothing is closed after a while in any case.
"""

import os
import secrets
import socket
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from dash import ClientsideFunction, Dash, Input, Output, dcc, html
from flask import abort
from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

from ffnprobe.errors import FfnProbeError
from ffnprobe.listening import WILDCARDS
from ffnprobe.version import VERSION
from ffnprobe.views.explorer import circuit_page, exports, neuron_page, prompt_page, search_page
from ffnprobe.views.explorer import components as ui
from ffnprobe.views.explorer.addresses import Address, read_address
from ffnprobe.views.explorer.components import Component, Viewport, read_viewport
from ffnprobe.views.explorer.exports import Export, Live
from ffnprobe.views.explorer.security import ACCESS, guard, say
from ffnprobe.views.explorer.session import Session, log_error


class ExplorerPage(NamedTuple):
    title: str
    show: Callable[[Session, Address, Viewport], Component]
    gather: Callable[[Session, Address, Live], Export]


PAGES = {
    "/": ExplorerPage("Prompt", prompt_page.show, prompt_page.gather),
    "/circuit": ExplorerPage("Circuit", circuit_page.show, circuit_page.gather),
    "/neuron": ExplorerPage("Neuron", neuron_page.show, neuron_page.gather),
    "/search": ExplorerPage("Search", search_page.show, search_page.gather),
    "/facts": ExplorerPage("Facts", search_page.show_facts, search_page.gather_facts),
}
# Dash's own page names no language and shows nothing without JavaScript.
INDEX = """<!DOCTYPE html>
<html lang="en">
<head>{%metas%}<title>{%title%}</title>{%favicon%}{%css%}</head>
<body><noscript>The explorer needs JavaScript, which is switched off.</noscript>
{%app_entry%}
<footer>{%config%}{%scripts%}{%renderer%}</footer></body>
</html>"""
# What `assets/script.js` does: a function, the store it is called for, what it waits for.
IN_BROWSER = (
    ("watchScreen", "screen", Input("location", "id")),
    ("writeAddress", "address", Input("live", "data")),
    ("openCell", "cell", Input("lens", "clickData")),
    ("openNode", "node", Input("graph", "clickData")),
    ("openNeuron", "point", Input("kinds", "clickData")),
    ("nameWindow", "window", Input("page", "children")),
)
CONNECTIONS = 64
BUSY = b"the explorer is busy: try again in a second.\n"
REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Type: text/plain\r\n"
    b"Content-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(BUSY), BUSY)
)


def build(session: Session, *, host: str = "127.0.0.1", token: str | None = None) -> Dash:
    """Build the app around a session; it loads nothing from other servers."""
    app = Dash(
        "ffnprobe.views.explorer",
        assets_folder=str(files("ffnprobe.views.explorer").joinpath("assets")),
        title="ffnprobe", update_title=None, serve_locally=True, use_pages=False,
        suppress_callback_exceptions=True, add_log_handler=False, enable_mcp=False,
        meta_tags=[{"name": "viewport", "content": "width=device-width, initial-scale=1"}],
        index_string=INDEX, on_error=_answer_error,
    )  # fmt: skip
    app.layout = _frame(session)

    def show(path: str | None, search_text: str | None, screen: object) -> tuple[Component, ...]:
        address = read_address(path, search_text)
        return show_page(session, address, read_viewport(screen)), _navigation(address), {}

    app.callback(
        Output("page", "children"), Output("navigation", "children"), Output("live", "data"),
        Input("location", "pathname"), Input("location", "search"), Input("screen", "data"),
    )(show)  # fmt: skip
    for name, store, trigger in IN_BROWSER:
        function = ClientsideFunction("explorer", name)
        app.clientside_callback(function, Output(store, "data"), trigger)
    for page in (prompt_page, neuron_page, search_page):
        page.register(app, session)
    exports.register(app, partial(gather, session))
    guard(app, host=host, token=token)
    return app


def _frame(session: Session) -> Component:
    model, c = session.model, session.model.config
    return html.Div(
        [
            dcc.Location(id="location", refresh="callback-nav"),
            # screen: dark mode and width; live: the sliders; job: the work in the background.
            *(dcc.Store(id=name) for name in ("screen", "live", "job", "address", "window", "cell", "point", "node")),
            dcc.Download(id="download"),
            html.A("to the page", href="#page", className="skip"),
            html.Header(
                [
                    html.A("ffnprobe", href="/", className="brand"),
                    html.Nav(id="navigation", **{"aria-label": "pages"}),
                    html.Span(
                        f"{model.name}: {c.layers} layers × {c.d_mlp:,} neurons",
                        className="soft model", title=f"weights {model.fingerprint}",
                    ),
                ]
            ),
            html.P("The explorer is busy with other pages. This one follows.", id="busy", role="status"),
            html.Main(id="page", tabIndex="-1"),
            html.Footer(f"ffnprobe {VERSION}; everything is computed on this machine.", className="soft"),
        ],
        className="frame",
    )  # fmt: skip


def _navigation(address: Address) -> list[Component]:
    """Link to every page, keep the question, and mark the current one."""
    marks: dict[str, Any] = {address.page: {"aria-current": "page"}}
    links = ((page.title, path, marks.get(path, {})) for path, page in PAGES.items())
    return [ui.link(title, address.to(path), **mark) for title, path, mark in links]


def show_page(session: Session, address: Address, viewport: Viewport) -> Component:
    if address.page not in PAGES:
        return ui.page("No such page", html.P(["Start with ", ui.link("a prompt", "/"), "."]))
    try:
        return PAGES[address.page].show(session, address, viewport)
    except FfnProbeError as error:
        return ui.page("This cannot be shown", ui.alert(error))


def gather(session: Session, address: Address, live: Live) -> Export:
    if address.page not in PAGES or address.path == "/neuron":
        raise FfnProbeError("there is nothing on this page to export.")
    return PAGES[address.page].gather(session, address, live)


def _answer_error(error: Exception) -> Any:
    """Refuse what a page would not ask for; log an unexpected error instead of showing it."""
    if isinstance(error, FfnProbeError):
        abort(say(str(error), 400))
    log_error()
    return None


class Quiet(WSGIRequestHandler):  # type: ignore[misc]
    """Handle requests without logging each one."""

    protocol_version = "HTTP/1.1"
    server_version = "ffnprobe"
    sys_version = ""
    timeout = 10.0  # seconds without a byte

    def log(self, type: str, message: str, *args: object) -> None:
        """Do not log."""

    def run_wsgi(self) -> None:
        """Answer a request; from now on the connection is not idle."""
        self.server.wake(self.connection)
        super().run_wsgi()


class Server(ThreadedWSGIServer):  # type: ignore[misc]
    """A server with a bounded number of connections."""

    def __init__(self, *given: Any, **options: Any) -> None:
        self._connections: dict[socket.socket, bool] = {}  # whether each is idle, the oldest first
        self._lock = threading.Lock()
        super().__init__(*given, **options)

    def process_request(self, request: socket.socket, client_address: Any) -> None:
        """Start a thread for a connection, if there is room or an idle one can be closed."""
        if not self._enter(request):
            with suppress(OSError):
                request.settimeout(0.1)
                request.recv(2**16)
                request.sendall(REFUSAL)
            super().shutdown_request(request)
            return
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket) -> None:
        with self._lock:
            self._connections.pop(request, None)
        super().shutdown_request(request)

    def wake(self, request: socket.socket) -> None:
        """Note that a connection has sent a request."""
        with self._lock:
            if request in self._connections:
                self._connections[request] = False

    def _enter(self, request: socket.socket) -> bool:
        with self._lock:
            if len(self._connections) >= CONNECTIONS:
                idle = (other for other, is_idle in self._connections.items() if is_idle)
                oldest = next(idle, None)
                if oldest is None:
                    return False
                del self._connections[oldest]
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
            self._connections[request] = True
            return True


def start(
    session: Session, listening: socket.socket, host: str, *, has_token: bool = True
) -> tuple[Server, str]:
    """Start a server on a bound port; return it and its URL, which has the access token."""
    port = int(listening.getsockname()[1])
    token = secrets.token_urlsafe(24) if has_token else None
    app = build(session, host=host, token=token)
    server = Server(host, port, app.server, handler=Quiet, fd=listening.fileno())
    named = "127.0.0.1" if host in WILDCARDS else host
    address = f"http://{f'[{named}]' if ':' in named else named}:{port}/"
    return server, address if token is None else f"{address}?{ACCESS}={token}"


@contextmanager
def open_browser(address: str) -> Iterator[None]:
    """Open the page in the user's browser, without waiting for it.

    Other users can see the arguments of a process, so the browser is given a private file that leads to
    the address.
    """
    handle, name = tempfile.mkstemp(prefix="ffnprobe-", suffix=".html")
    file = Path(name)
    with os.fdopen(handle, "w", encoding="utf-8") as text:
        text.write(f'<!DOCTYPE html><meta http-equiv="refresh" content="0; url={escape(address)}">')
    threading.Thread(target=webbrowser.open, args=(file.as_uri(),), daemon=True).start()
    try:
        yield
    finally:
        file.unlink(missing_ok=True)

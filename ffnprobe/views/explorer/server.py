"""Serve the explorer: start the server on a bound port, open the browser.

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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from html import escape
from pathlib import Path
from typing import Any

from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

from ffnprobe.listening import WILDCARDS
from ffnprobe.views.explorer.app import build
from ffnprobe.views.explorer.security import ACCESS
from ffnprobe.views.explorer.session import Session

CONNECTIONS = 64
BUSY = b"the explorer is busy: try again in a second.\n"
REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Type: text/plain\r\n"
    b"Content-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(BUSY), BUSY)
)


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
        """Close a connection."""
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
                idle = (known for known, is_idle in self._connections.items() if is_idle)
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

"""Serve the explorer: bind a port, start the server, open the browser."""

import errno
import socket
import threading
import webbrowser

from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from ffnprobe.errors import OptionRefused
from ffnprobe.views.explorer.app import build
from ffnprobe.views.explorer.security import WILDCARDS
from ffnprobe.views.explorer.session import Session

PORTS = 65_535


class Quiet(WSGIRequestHandler):  # type: ignore[misc]
    """Handle requests without logging each one; keep connections open."""

    protocol_version = "HTTP/1.1"
    server_version = "ffnprobe"
    sys_version = ""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Do not log."""


def bind(host: str, port: int) -> socket.socket:
    """Bind a port before any slow work; if it is in use, the error names a free one."""
    if not 0 <= port <= PORTS:
        raise OptionRefused(f"{port} is not a port.", remedy=f"--port 8050 (0 to {PORTS})")
    try:
        return _bind(host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise OptionRefused(
                f"port {port} is in use.", remedy=f"--port {find_free(host, port)}"
            ) from None
        why = error.strerror or str(error)
        raise OptionRefused(f"cannot listen on {host}:{port}: {why}.") from None


def find_free(host: str, port: int) -> int:
    """Return the next free port, or any."""
    for candidate in [*range(port + 1, min(port + 100, PORTS)), 0]:
        try:
            with _bind(host, candidate) as found:
                return int(found.getsockname()[1])
        except OSError:
            continue
    return 0


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A port just closed can be bound again; one in use cannot.
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(128)
    except BaseException:
        found.close()
        raise
    return found


def start(session: Session, listening: socket.socket, host: str) -> tuple[BaseWSGIServer, str]:
    """Start a server on a bound port; return it and its URL."""
    port = int(listening.getsockname()[1])
    app = build(session, host=host)
    server = make_server(
        host, port, app.server, threaded=True, request_handler=Quiet, fd=listening.fileno()
    )
    named = "127.0.0.1" if host in WILDCARDS else host
    return server, f"http://{f'[{named}]' if ':' in named else named}:{port}/"


def open_browser(address: str) -> None:
    """Open the page in the user's browser, without waiting for it."""
    threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

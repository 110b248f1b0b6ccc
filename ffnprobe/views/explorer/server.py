"""Serve the explorer: find the port, say where it is, answer until interrupted."""

import errno
import socket
import threading
import webbrowser

from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from ffnprobe.errors import OptionRefused
from ffnprobe.views.explorer.app import build
from ffnprobe.views.explorer.desk import Desk
from ffnprobe.views.explorer.security import WILDCARDS

PORTS = 65_535


class Quiet(WSGIRequestHandler):  # type: ignore[misc]
    """Answer without a line in the terminal for each request; keep connections open."""

    protocol_version = "HTTP/1.1"
    server_version = "ffnprobe"
    sys_version = ""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing."""


def bind(host: str, port: int) -> socket.socket:
    """Take a port before anything slow begins; one in use is said, with a free one."""
    if not 0 <= port <= PORTS:
        raise OptionRefused(f"{port} is no port.", remedy=f"--port 8050 (0 to {PORTS})")
    try:
        return _bind(host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise OptionRefused(
                f"port {port} is in use.", remedy=f"--port {find_free(host, port)}"
            ) from None
        why = error.strerror or str(error)
        raise OptionRefused(f"{host}:{port} cannot be listened on: {why}.") from None


def find_free(host: str, port: int) -> int:
    """Return the next port that is free, or any."""
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
        # A port just left may be taken again; one somebody listens on may not.
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(128)
    except BaseException:
        found.close()
        raise
    return found


def start(desk: Desk, listening: socket.socket, host: str) -> tuple[BaseWSGIServer, str]:
    """Make a server on a port taken; return it and its address."""
    port = int(listening.getsockname()[1])
    app = build(desk, host=host)
    server = make_server(
        host, port, app.server, threaded=True, request_handler=Quiet, fd=listening.fileno()
    )
    named = "127.0.0.1" if host in WILDCARDS else host
    return server, f"http://{f'[{named}]' if ':' in named else named}:{port}/"


def open_browser(address: str) -> None:
    """Show the page in the user's browser, without waiting for it."""
    threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

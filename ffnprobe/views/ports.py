"""Bind a port before any slow work is done."""

import errno
import socket

from ffnprobe.errors import OptionRefused

PORTS = 65_535


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

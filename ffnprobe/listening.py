"""What a server listens on: a port, bound before any slow work, and hosts that are its own.

A page of another site can make a browser send requests to 127.0.0.1, and a name that is rebound to
127.0.0.1 can read the replies. So the explorer and the MCP server answer only to their own hosts.
"""

import errno
import hmac
import ipaddress
import socket
from contextlib import suppress
from urllib.parse import urlsplit

from ffnprobe.errors import OptionRefused

LOCAL = frozenset(("127.0.0.1", "localhost", "::1"))
WILDCARDS = frozenset(("0.0.0.0", "::"))
PORTS = 65_535


def bind(host: str, port: int) -> socket.socket:
    """Bind a port; if it is in use, the error names a free one."""
    if not 0 <= port <= PORTS:
        raise OptionRefused(f"{port} is not a port.", remedy=f"--port 8050 (0 to {PORTS})")
    try:
        return _bind(host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            free = f"--port {_find_free(host, port)}"
            raise OptionRefused(f"port {port} is in use.", remedy=free) from None
        why = error.strerror or str(error)
        raise OptionRefused(f"cannot listen on {host}:{port}: {why}.") from None


def _find_free(host: str, port: int) -> int:
    """Return the next free port, or any."""
    for candidate in [*range(port + 1, min(port + 100, PORTS)), 0]:
        with suppress(OSError), _bind(host, candidate) as free:
            return int(free.getsockname()[1])
    return 0


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A port just closed can be bound again; one in use cannot.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except BaseException:
        listener.close()
        raise
    return listener


def read_host(header: str) -> str:
    """Return the name in a Host header, without the port, which a tunnel may change."""
    try:
        return (urlsplit(f"//{header}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def is_own_host(named: str, *, bound: str) -> bool:
    """Say whether a host is a server's own: this machine, or the host it is bound to.

    >>> is_own_host("localhost", bound="127.0.0.1"), is_own_host("evil.example", bound="127.0.0.1")
    (True, False)
    """
    if named in LOCAL or named == bound:
        return True
    if bound not in WILDCARDS:
        return False
    # Bound to all addresses: a numeric address can only be this machine, a name could be rebound.
    try:
        ipaddress.ip_address(named)
    except ValueError:
        return named in {socket.gethostname().lower(), socket.getfqdn().lower()}
    return True


def is_same_token(given: str, token: str) -> bool:
    """Compare in a time that does not tell how much was right."""
    return hmac.compare_digest(given.encode("utf-8", errors="replace"), token.encode())

"""Which hosts are a server's own, and whether a token is the right one.

A page of another site can make a browser send requests to 127.0.0.1, and a name that is rebound to
127.0.0.1 can read the replies. So the explorer and the MCP server answer only to their own hosts.
"""

import hmac
import ipaddress
import socket
from urllib.parse import urlsplit

LOCAL = frozenset(("127.0.0.1", "localhost", "::1"))
WILDCARDS = frozenset(("0.0.0.0", "::"))


def read_host(header: str) -> str:
    """Return the name in a Host header, without the port, which a tunnel may change."""
    try:
        return (urlsplit(f"//{header}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def is_own(named: str, *, bound: str) -> bool:
    """Say whether a host is a server's own: this machine, or the host it is bound to.

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


def is_same(given: str, token: str) -> bool:
    """Compare in a time that does not tell how much was right."""
    return hmac.compare_digest(given.encode("utf-8", errors="replace"), token.encode())

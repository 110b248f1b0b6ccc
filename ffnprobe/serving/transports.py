"""How clients connect: over standard input and output, or over HTTP on this machine with a token.

On stdio the SDK turns file descriptor 1 to stderr while it serves, so that nothing that a library prints
gets among the messages. Over HTTP a request must have the token and name a host of this machine, and if
it names an origin, that must be this machine too: other users and other sites are refused.
"""

import asyncio
import os
import signal
import socket
from typing import Any, NoReturn
from urllib.parse import urlsplit

import uvicorn
from mcp.server import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from ffnprobe.listening import is_own_host, is_same_token, read_host

HOST = "127.0.0.1"
PATH = "/mcp"
REQUEST_BYTES = 4 * 2**20


def serve_stdio(server: "MCPServer[Any]") -> None:
    """Serve one client over standard input and output, until it closes them or the process is told to end."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)
    server.run("stdio")


def _end(number: int, frame: object) -> NoReturn:
    """End at once: a thread waits for the client's next line and cannot be called off."""
    try:
        os.write(2, b"interrupted: the server has ended.\n")
    finally:
        os._exit(128 + number)


def serve_http(server: "MCPServer[Any]", listening: socket.socket, token: str) -> None:
    """Serve clients over HTTP on a bound port, until interrupted."""
    app = server.streamable_http_app(
        streamable_http_path=PATH, json_response=True, max_request_body_size=REQUEST_BYTES,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )  # fmt: skip
    config = uvicorn.Config(
        Guard(app, token), log_level="warning", access_log=False, timeout_graceful_shutdown=1
    )
    uvicorn.Server(config).run(sockets=[listening])


class Guard:
    """Refuse requests of other hosts and origins, and those without the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        refusal = self._check(Headers(scope=scope))
        has_begun = False

        async def note_send(message: Any) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        if refusal is None:
            try:
                await self._app(scope, receive, note_send)
                return
            except asyncio.CancelledError:
                # The server is told to end while it works; the log is spared a traceback.
                if has_begun:
                    return
                refusal = 503, "the server ends."
        status, text = refusal
        headers = {"cache-control": "no-store"}
        if status == 401:
            headers["www-authenticate"] = "Bearer"
        await PlainTextResponse(f"{text}\n", status, headers)(scope, receive, send)

    def _check(self, headers: Headers) -> tuple[int, str] | None:
        if not is_own_host(read_host(headers.get("host", "")), bound=HOST):
            return 403, "this is not a host of the server."
        origin = headers.get("origin")
        if origin is not None and not is_own_host(read_host(urlsplit(origin).netloc), bound=HOST):
            return 403, "only a page of this machine may send this request."
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not is_same_token(given.strip(), self._token):
            return 401, "the token is missing or wrong: send it as `Authorization: Bearer TOKEN`."
        return None

"""Clients that go away and servers that are told to end: work stops, nothing hangs, nothing is dumped."""

import json
import signal
import subprocess
import sys
import time

import anyio
import httpx2
import pytest

from tests.conftest import JORDAN
from tests.serving.conftest import COMMAND, ROOT, TOKEN
from tests.serving.test_protocol import CALL, INITIALIZE, SLOW, over_http, start_stdio

DYING = """
import asyncio, os, signal, sys
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

async def main():
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {sys.argv[2]}"}, timeout=60)
    async with http, Client(streamable_http_client(sys.argv[1], http_client=http)) as client:
        asyncio.get_running_loop().call_later(0.3, os.kill, os.getpid(), signal.SIGKILL)
        await client.call_tool("score", {"facts": "pocket", "effects": True, "seconds": 600})

asyncio.run(main())
"""
# Work of many minutes.
ENDLESS = {"facts": "pocket", "effects": True, "seconds": 600}


def check_the_next_is_answered(address: str) -> None:
    """Ask with a budget that leaves no time to wait for the work of a client that has gone."""

    async def main() -> None:
        with anyio.fail_after(60):
            async with over_http(address) as client:
                answer = await client.call_tool("run", {"prompt": JORDAN, "seconds": 30})
                assert not answer.is_error, answer.content

    anyio.run(main)


def test_a_client_that_dies_stops_nothing(http_server, environment):
    """Two clients are killed in the middle of a call; the next one is answered."""
    words = [http_server.address, TOKEN]
    dying = [
        subprocess.Popen([sys.executable, "-c", DYING, *words], env=environment) for _ in range(2)
    ]
    assert [each.wait(timeout=60) for each in dying] == [-signal.SIGKILL] * 2
    check_the_next_is_answered(http_server.address)

    async def main() -> None:
        with anyio.fail_after(30):
            async with over_http(http_server.address) as client:
                with anyio.move_on_after(0.2):  # one that gives up is no reason to stop either
                    await client.call_tool("explain", SLOW)
                answer = await client.call_tool("run", {"prompt": JORDAN})
                assert not answer.is_error

    anyio.run(main)
    assert http_server.process.poll() is None


def test_a_client_of_the_older_protocol_that_hangs_up_stops_nothing(http_server):
    headers = {
        "Authorization": f"Bearer {TOKEN}", "Accept": "application/json, text/event-stream",
    }  # fmt: skip
    with httpx2.Client(headers=headers, timeout=20) as http:
        began = http.post(http_server.address, json=INITIALIZE)
        http.headers["Mcp-Session-Id"] = began.headers["Mcp-Session-Id"]
        started = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert http.post(http_server.address, json=started).status_code == 202
        call = CALL | {"params": {"name": "score", "arguments": ENDLESS}}
        with pytest.raises(httpx2.ReadTimeout):
            http.post(http_server.address, json=call, timeout=2)
    check_the_next_is_answered(http_server.address)


ASKING = DYING.replace(
    "asyncio.get_running_loop().call_later(0.3, os.kill, os.getpid(), signal.SIGKILL)",
    "print('asking', file=sys.stderr, flush=True)",
)


@pytest.mark.parametrize("is_at_work", [False, True])
def test_an_interrupted_server_ends(environment, is_at_work):
    server = subprocess.Popen(
        [*COMMAND, "--http", "--port", "0"], env=environment, cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert server.stdout is not None
    address = server.stdout.readline().strip()
    server.stdout.readline()
    time.sleep(0.5)
    if is_at_work:
        words = [sys.executable, "-c", ASKING, address, TOKEN]
        asking = subprocess.Popen(words, env=environment, stderr=subprocess.PIPE)
        assert asking.stderr is not None
        assert asking.stderr.readline() == b"asking\n"
        time.sleep(1)
    server.send_signal(signal.SIGTERM)
    _, errors = server.communicate(timeout=20)
    assert "Traceback" not in errors
    if is_at_work:
        asking.communicate(timeout=60)  # its client is told too, and does not wait on


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("is_at_work", [False, True])
def test_on_stdio_a_server_ends_while_its_client_waits(environment, number, is_at_work):
    server = start_stdio(environment)
    assert server.stdin is not None
    assert server.stdout is not None
    messages = [INITIALIZE, {"jsonrpc": "2.0", "method": "notifications/initialized"}]
    if is_at_work:
        messages.append(CALL | {"params": {"name": "score", "arguments": ENDLESS}})
    for message in messages:
        server.stdin.write(json.dumps(message) + "\n")
        server.stdin.flush()
    server.stdout.readline()
    time.sleep(1)
    server.send_signal(number)
    began = time.monotonic()
    assert server.wait(timeout=20) == 128 + number
    assert time.monotonic() - began < 3
    assert server.stderr is not None
    assert server.stderr.read().endswith("interrupted: the server has ended.\n")

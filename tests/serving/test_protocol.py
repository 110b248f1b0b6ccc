"""The protocol with the SDK's own client: over stdio and HTTP, two clients, strangers."""

import io
import json
import os
import shlex
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import psutil
import pyarrow.parquet as pq
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

import ffnprobe as fp
from ffnprobe.serving.protocol import SKILL, AgentServer, read_docs
from ffnprobe.serving.service import Service
from ffnprobe.serving.tools import TOOLS
from tests.conftest import JORDAN
from tests.serving.conftest import COMMAND, ROOT, TOKEN
from tests.serving.test_tools import ANSWER, CALLS

# Memory is measured over so many calls; the long questions are every SELDOM-th of them.
MANY = int(os.environ.get("FFNPROBE_CALLS", "500"))
SELDOM = 25
SLOW = {"prompt": JORDAN, "answer": ANSWER, "seed": 1}
INITIALIZE = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {},
               "clientInfo": {"name": "test", "version": "1"}},
}  # fmt: skip
CALL = {
    "jsonrpc": "2.0", "id": 2, "method": "tools/call",
    "params": {"name": "ablate", "arguments": {"prompt": JORDAN, "answer": ANSWER}},
}  # fmt: skip


@asynccontextmanager
async def over_http(address: str, *, token: str = TOKEN) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}"}
    http = httpx2.AsyncClient(headers=headers, timeout=60)
    async with http, Client(streamable_http_client(address, http_client=http)) as client:
        yield client


@asynccontextmanager
async def over_stdio(environment: dict[str, str]) -> AsyncIterator[Client]:
    command, *args = COMMAND
    server = StdioServerParameters(command=command, args=args, env=environment, cwd=ROOT)
    async with Client(server) as client:
        yield client


async def check_everything(client: Client) -> None:
    """List and call every tool, read every kind of resource, make every kind of mistake."""
    listed = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(listed) == {*TOOLS, "more"}
    assert all(tool.annotations.read_only_hint for tool in listed.values())
    for name, arguments in CALLS.items():
        assert set(arguments) <= set(listed[name].input_schema["properties"])
        found = await client.call_tool(name, {**arguments, "rows": 1})
        assert not found.is_error, found.content
        assert json.loads(found.content[0].text) == found.structured_content
        assert found.structured_content["provenance"]["model"] == "pocket"
    for name, arguments, words in (
        ("run", {"promt": JORDAN}, 'run has no argument "promt"'),
        ("run", {"prompt": JORDAN, "model": "gpt2"}, '"gpt2" is not served'),
        ("explain", {**SLOW, "seconds": 0.05}, "the time budget of 0.05 seconds is used up"),
        ("more", {"cursor": "x.y.0"}, "leads nowhere"),
        ("expain", {}, 'there is no tool "expain"'),
    ):
        refused = await client.call_tool(name, arguments)
        assert refused.is_error
        assert words in refused.content[0].text
        assert "Traceback" not in refused.content[0].text
    pages = [page.uri for page in (await client.list_resources()).resources]
    assert pages[0] == f"ffnprobe://docs/{SKILL}"
    read = await client.read_resource(pages[0])
    assert read.contents[0].text == read_docs()[SKILL]
    card = await client.read_resource("ffnprobe://models/pocket/card.md")
    assert card.contents[0].text.startswith("# pocket")
    with pytest.raises(MCPError, match="there is nothing at"):
        await client.read_resource("ffnprobe://docs/../../etc/passwd")


def test_every_tool_and_resource_over_stdio(environment):
    async def main() -> None:
        with anyio.fail_after(120):
            async with over_stdio(environment) as client:
                assert "A grade is not a" in (client.instructions or "")
                await check_everything(client)

    anyio.run(main)


def test_every_tool_and_resource_over_http(http_server):
    async def main() -> None:
        with anyio.fail_after(120):
            async with over_http(http_server.address) as client:
                await check_everything(client)

    anyio.run(main)


def test_the_survey_is_a_parquet_file(service, pocket):
    import base64

    async def main() -> bytes:
        async with Client(AgentServer(service)) as client:
            found = await client.read_resource("ffnprobe://models/pocket/survey.parquet")
            return base64.b64decode(found.contents[0].blob)

    table = pq.read_table(io.BytesIO(anyio.run(main)))
    assert table.num_rows == pocket.config.neurons
    known = json.loads(table.schema.metadata[b"ffnprobe"])["provenance"]
    assert fp.Provenance.from_dict(known).identity == pocket.identity


def test_two_clients_at_once(http_server):
    async def ask(found: list[Any], name: str, arguments: dict[str, Any]) -> None:
        async with over_http(http_server.address) as client:
            found.append(await client.call_tool(name, arguments))

    async def main() -> None:
        found: list[Any] = []
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(ask, found, "explain", {"prompt": JORDAN, "answer": ANSWER})
                    tasks.start_soon(ask, found, "run", {"prompt": JORDAN})
        assert [each.is_error for each in found] == [False] * 6
        rows = {json.dumps(each.structured_content["rows"]) for each in found}
        assert len(rows) == 2  # the same question has the same answer

    anyio.run(main)


def start_stdio(environment: dict[str, str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        COMMAND, env=environment, cwd=ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_on_stdio_a_server_ends_with_its_client(environment):
    server = start_stdio(environment)
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps(INITIALIZE) + "\n")
    server.stdin.flush()
    assert json.loads(server.stdout.readline())["result"]["serverInfo"]["name"] == "ffnprobe"
    server.stdin.write(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}) + "\n")
    server.stdin.write(json.dumps(CALL) + "\n")
    server.stdin.flush()
    time.sleep(0.3)  # it is at work
    server.stdin.close()
    rest = server.stdout.read()
    assert server.wait(timeout=20) == 0
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in rest.splitlines())


@pytest.mark.parametrize(
    ("line", "number", "code"),
    [
        (json.dumps(CALL | {"id": 7}).replace(JORDAN, "half a \\ud800 character"), 7, -32700),
        (json.dumps(CALL | {"id": "\ud800"}), None, -32700),
        ("{", None, -32700),
        ('{"jsonrpc": "2.0", "id": 8}', 8, -32600),
        ('{"jsonrpc": "2.0", "id": 9, "method": 3}', 9, -32600),
        ("[]", None, -32600),
        ("[" * 100_000, None, -32700),
    ],
)
def test_a_line_that_is_no_message_is_answered_with_an_error(line, number, code, environment):
    server = start_stdio(environment)
    assert server.stdin is not None
    assert server.stdout is not None
    for message in (line, "", json.dumps(INITIALIZE)):
        server.stdin.write(message + "\n")
        server.stdin.flush()
    refusal = json.loads(server.stdout.readline())
    assert refusal["id"] == number
    assert refusal["error"]["code"] == code
    assert "this is not a message of MCP" in refusal["error"]["message"]
    begun = json.loads(server.stdout.readline())
    assert begun["result"]["serverInfo"]["name"] == "ffnprobe"
    server.stdin.close()
    assert server.wait(timeout=20) == 0


def test_without_standard_input_there_is_nobody_to_serve(environment):
    line = f"{shlex.join(COMMAND)} <&-"
    done = subprocess.run(
        line, shell=True, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    last = "error: standard input is closed, so no client can ask over it.\n  try: --http\n"
    assert done.stderr.endswith(last)
    assert "Traceback" not in done.stderr


def test_standard_output_is_nothing_but_messages(environment, tmp_path):
    """What a library prints, in Python or in C, does not get among the messages."""
    site = tmp_path / "site"
    site.mkdir()
    # Whenever an answer is written, there is noise.
    (site / "sitecustomize.py").write_text(
        "import json, os\n"
        "dumps = json.dumps\n"
        "def loud(*given, **named):\n"
        "    print('NOISE'); os.write(1, b'MORE NOISE\\n')\n"
        "    return dumps(*given, **named)\n"
        "json.dumps = loud\n"
    )
    paths = os.pathsep.join([str(site), environment["PYTHONPATH"]])

    async def main() -> None:
        with anyio.fail_after(60):
            async with over_stdio({**environment, "PYTHONPATH": paths}) as client:
                answer = await client.call_tool("run", {"prompt": JORDAN})
                assert not answer.is_error

    anyio.run(main)


def test_what_was_held_back_of_standard_output_is_not_written_at_the_end(environment, tmp_path):
    """Python keeps what is printed until there is enough of it; the wire is given back by then."""
    (tmp_path / "sitecustomize.py").write_text(
        "import json\n"
        "dumps = json.dumps\n"
        "def loud(*given, **named):\n"
        "    print('NOISE', end='')\n"
        "    return dumps(*given, **named)\n"
        "json.dumps = loud\n"
    )
    paths = os.pathsep.join([str(tmp_path), environment["PYTHONPATH"]])
    server = start_stdio({**environment, "PYTHONPATH": paths})
    assert server.stdin is not None
    assert server.stdout is not None
    for message in (
        INITIALIZE,
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        CALL | {"params": {"name": "run", "arguments": {"prompt": JORDAN}}},
    ):
        server.stdin.write(json.dumps(message) + "\n")
        server.stdin.flush()
    replies = [json.loads(server.stdout.readline()) for _ in range(2)]
    assert replies[1]["result"]["structuredContent"]["rows"]
    server.stdin.close()
    assert server.stdout.read() == ""
    assert server.stderr is not None
    assert "NOISE" in server.stderr.read()
    assert server.wait(timeout=20) == 0


def test_a_reply_comes_soon_after_the_budget_whatever_the_work_does(service, monkeypatch):
    monkeypatch.setattr("ffnprobe.serving.protocol.GRACE", 0.1)
    monkeypatch.setattr(Service, "answer", lambda *_: time.sleep(5))

    async def main() -> Any:
        async with Client(AgentServer(service)) as client:
            return await client.call_tool("run", {"prompt": JORDAN, "seconds": 0.1})

    began = time.monotonic()
    reply = anyio.run(main)
    assert time.monotonic() - began < 3
    assert reply.is_error
    assert "and the work has not stopped yet" in reply.content[0].text


@pytest.mark.parametrize(
    ("headers", "status", "words"),
    [
        ({"Authorization": ""}, 401, "the token is missing or wrong"),
        ({"Authorization": "Bearer wrong"}, 401, "the token is missing or wrong"),
        ({"Authorization": f"Basic {TOKEN}"}, 401, "the token is missing or wrong"),
        ({"Host": "evil.example"}, 403, "not a host of the server"),
        ({"Host": "127.0.0.1.evil.example:80"}, 403, "not a host of the server"),
        ({"Origin": "https://evil.example"}, 403, "only a page of this machine"),
        ({"Origin": "null"}, 403, "only a page of this machine"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_strangers_are_refused(http_server, headers, status, words, method):
    usual = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json, text/event-stream"}
    body = {"json": INITIALIZE} if method == "POST" else {}
    reply = httpx2.request(method, http_server.address, headers=usual | headers, timeout=20, **body)
    assert reply.status_code == status
    assert words in reply.text


def test_the_user_is_not_refused(http_server):
    headers = {
        "Authorization": f"Bearer {TOKEN}", "Accept": "application/json, text/event-stream",
        "Origin": "http://localhost:3000", "Host": "localhost",
    }  # fmt: skip
    reply = httpx2.post(http_server.address, json=INITIALIZE, headers=headers, timeout=20)
    assert reply.status_code == 200
    assert reply.json()["result"]["serverInfo"]["name"] == "ffnprobe"


def test_memory_stays_flat_over_many_calls(http_server):
    calls: list[Callable[[int], tuple[str, dict[str, Any]]]] = [
        lambda n: ("run", {"prompt": f"{JORDAN} {n}"}),
        lambda n: ("read", {"neurons": [f"L0N{n % 100}"]}),
        lambda n: ("search", {"tokens": [ANSWER], "top": 100 + n % 100}),
        lambda n: ("attribute", {"prompt": JORDAN, "answer": ANSWER, "top": 1 + n % 9}),
        lambda n: ("label", {"neurons": [f"L1N{n % 100}-L1N{n % 100 + 9}"]}),
    ]
    seldom: list[Callable[[int], tuple[str, dict[str, Any]]]] = [
        lambda n: ("explain", {"prompt": JORDAN, "answer": ANSWER, "seed": n}),
        lambda n: ("paths", {"prompt": JORDAN, "answer": ANSWER, "top": 1 + n % 9}),
        lambda n: ("circuit", {"prompt": JORDAN, "answer": ANSWER, "keep": 10 + n % 9}),
    ]
    process = psutil.Process(http_server.process.pid)

    async def main() -> tuple[int, int]:
        async with over_http(http_server.address) as client:
            sizes = []
            for number in range(MANY):
                chosen = calls if number % SELDOM else seldom
                name, arguments = chosen[(number // SELDOM + number) % len(chosen)](number)
                answer = await client.call_tool(name, arguments)
                assert not answer.is_error, answer.content
                sizes.append(process.memory_info().rss)
            half = len(sizes) // 2
            return max(sizes[half // 2 : half]), max(sizes[half:])

    early, late = anyio.run(main)
    print(f"{MANY} calls: {early / 2**20:.0f} MB, then {late / 2**20:.0f} MB")
    assert late < 1.1 * early

"""What the server answers, whom it refuses, and that it neither loses a request nor grows."""

import json
import socket
import subprocess
import sys
import threading
from urllib.parse import urlencode

import psutil
import pytest

from ffnprobe.cli import servers
from ffnprobe.errors import OptionRefused
from ffnprobe.listening import bind, is_own_host, read_host
from ffnprobe.views.explorer.session import Session
from tests.cli.runner import refused
from tests.conftest import JORDAN
from tests.explorer.client import Client
from tests.explorer.conftest import running

ASKED = f"?{urlencode({'prompt': JORDAN, 'answer': ' basketball'})}"


@pytest.fixture(scope="module")
def client(explorer):
    return Client(explorer)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8050", "127.0.0.1.evil.example", "localhost.evil", "", "[::2]", "10.0.0.1"]
)  # fmt: skip
def test_a_host_that_is_not_its_own_is_refused(client, host):
    for method, path in (("GET", "/"), ("GET", "/_dash-layout"), ("POST", "/_dash-update-component")):  # fmt: skip
        status, _, body = client.ask(method, path, Host=host)
        assert status in (400, 403), (method, path)
        assert b"pocket" not in body


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:9000", "LOCALHOST", "[::1]:8050"])
def test_its_own_names_are_answered(client, host):
    assert client.ask("GET", "/", Host=host)[0] == 200


@pytest.mark.parametrize(
    ("named", "bound", "own"),
    [
        ("192.168.1.5", "0.0.0.0", True),
        ("fe80::1", "::", True),
        ("evil.example", "0.0.0.0", False),
        ("10.0.0.2", "10.0.0.2", True),
        ("10.0.0.3", "10.0.0.2", False),
        (socket.gethostname().lower(), "0.0.0.0", True),
        (socket.gethostname().lower(), "127.0.0.1", socket.gethostname() == "localhost"),
    ],
)
def test_hosts_are_its_own_by_where_it_listens(named, bound, own):
    assert is_own_host(named, bound=bound) is own


def test_a_host_is_read_without_its_port():
    assert [read_host(h) for h in ("A.b:80", "[::1]:80", "a.", "a:b:c")] == ["a.b", "::1", "a", "a"]
    assert read_host("[") == ""


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_post_from_another_page_is_refused(client, headers):
    inputs = {"location.pathname": "/facts", "location.search": "", "screen.data": None}
    outputs = ("page.children", "navigation.children", "live.data")
    assert client.call(outputs, inputs, **headers)[0] == 403
    assert client.call(outputs, inputs)[0] == 200
    own = {"Origin": f"http://127.0.0.1:{client.port}", "Sec-Fetch-Site": "same-origin"}
    assert client.call(outputs, inputs, **own)[0] == 200


def test_a_get_changes_nothing_and_a_form_cannot_post(client, session):
    jobs = len(session.jobs)
    cache = len(session.cache)
    for path in ("/", f"/{ASKED}", f"/neuron/L0N1{ASKED}", "/search", "/facts", "/_dash-layout"):
        assert client.ask("GET", path)[0] == 200
    assert client.ask("GET", "/_dash-update-component")[0] in (200, 405)
    assert (len(session.jobs), len(session.cache)) == (jobs, cache)
    # What a form of another site can send without asking first is not JSON to the server.
    sent = json.dumps({"output": "page.children"})
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        status = client.ask("POST", "/_dash-update-component", sent, **{"Content-Type": kind})[0]
        assert status == 415


def test_a_request_too_large_is_refused(client):
    huge = "x" * 300_000
    status = client.ask("POST", "/_dash-update-component", huge, **{"Content-Type": "application/json"})[0]  # fmt: skip
    assert status == 413
    said = client.page("/", f"?{urlencode({'prompt': 'x' * 30_000})}")
    assert "takes at most 20,000" in said


def test_replies_are_sealed(client):
    _, headers, body = client.ask("GET", "/")
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "'unsafe-inline'" not in policy.partition("script-src")[2].partition(";")[0]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert "Werkzeug" not in headers["Server"]
    assert b'lang="en"' in body
    assert b'src="http' not in body
    assert b'href="http' not in body


@pytest.mark.parametrize("path", ["/_mcp", "/mcp", "/_dash-mcp"])
def test_there_is_no_door_for_machines(client, path):
    """Dash can serve its callbacks to agents; the explorer does not."""
    assert client.ask("POST", path, "{}", **{"Content-Type": "application/json"})[0] in (404, 405)


def test_an_unknown_page_and_an_unknown_neuron_are_said(client):
    assert "No such page" in client.page("/nowhere")
    assert "pocket has layers L0\\u2013L6" in client.page("/neuron/L9N1")
    assert "is not the name of a neuron" in client.page("/neuron/<script>")
    assert "is not the name of a neuron" in client.page("/neuron/L1")
    assert "pocket overflows on this prompt" in client.page("/neuron/L0N1", "?prompt=a&set=1e308")


def test_it_listens_on_this_machine_only(explorer):
    port = Client(explorer).port
    held = [c for c in psutil.Process().net_connections() if c.status == "LISTEN" and c.laddr.port == port]  # fmt: skip
    assert {c.laddr.ip for c in held} == {"127.0.0.1"}


def test_a_port_in_use_is_said_with_a_free_one():
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        said = refused("explore", "--port", str(port), "--no-open")
        free = int(said.rpartition("--port ")[2])
        assert said.startswith(f"error: port {port} is in use.\n  try: --port ")
        assert free != port
        bind("127.0.0.1", free).close()


@pytest.mark.parametrize(("host", "port", "said"), [("127.0.0.1", 70_000, "70000 is not a port"), ("203.0.113.7", 0, "cannot listen on")])  # fmt: skip
def test_an_address_that_cannot_be_had_is_said(host, port, said):
    with pytest.raises(OptionRefused, match=said):
        bind(host, port)


def test_what_cannot_be_loaded_is_said_before_any_page(tmp_path):
    common = ("explore", "--no-open", "--port", "0")
    assert "error: " in refused(*common, "--model", tmp_path)
    assert "there is no file or folder" in refused(*common, "--facts", tmp_path / "no.csv")
    (tmp_path / "bare.csv").write_text("prompt,answer\nA prompt without an answer,\n")
    assert "no fact that can be read" in refused(*common, "--facts", tmp_path / "bare.csv")
    assert "error: " in refused(*common, "--store", tmp_path)


def test_explore_takes_no_file_to_write(tmp_path):
    said = refused("explore", "--no-open", "--out", tmp_path / "x.csv")
    assert "explore does not print or write a result." in said


def test_without_dash_the_command_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(servers, "find_spec", lambda package: None)
    said = refused("explore", "--no-open")
    assert said.startswith("error: the explorer needs the package dash, which is not installed.")
    assert servers.name_install("explore") in said
    assert "[explore]" in said


def test_the_command_serves_says_where_and_ends_with_control_c(tmp_path):
    command = [sys.executable, "-m", "ffnprobe", "explore", "--no-open", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:  # fmt: skip
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:")
        assert "basketball" in Client(address).page("/", ASKED)
        process.send_signal(2)
        rest, said = process.communicate(timeout=60)
    assert process.returncode == 0
    assert rest == ""
    assert "2,140 facts of pocket" in said
    assert "development server" not in said
    assert "GET" not in said


def test_many_users_clicks_are_all_answered_and_memory_stays(pocket):
    """Twenty users, a few clicks each: the full minute of it is measured by the benchmark."""
    session = Session(pocket)
    session.warm()
    users, clicks, lost = 20, 6, []
    with running(session) as address:

        def use(user):
            client = Client(address)
            prompts = [f"{JORDAN} {'very ' * (n % 3)}{user % 5}" for n in range(clicks)]
            for n, prompt in enumerate(prompts):
                asked = f"?{urlencode({'prompt': prompt})}"
                path = "/" if n % 2 else f"/neuron/L{n % 6}N{user}"
                try:
                    body = client.page(path, asked)
                    shown = f"L{n % 6}N{user}" if path != "/" else "comes next"
                    if shown not in body:
                        lost.append((user, n, "another page"))
                except Exception as error:
                    lost.append((user, n, error))

        def all_at_once():
            threads = [threading.Thread(target=use, args=(user,)) for user in range(users)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return psutil.Process().memory_info().rss

        first = all_at_once()
        second = all_at_once()
    assert lost == []
    assert second - first < 60 * 2**20
    assert len(session.cache) <= 64

"""What no page would send is refused in words, and what is too much is told to come back."""

import copy
import itertools
import json
import random
import socket
import threading
import time
from urllib.parse import urlencode

import pytest

from ffnprobe.views.explorer import security, server
from ffnprobe.views.explorer.addresses import read_address
from ffnprobe.views.explorer.server import build
from tests.conftest import JORDAN
from tests.explorer.client import PAGE, Client
from tests.explorer.conftest import running

MANY, SEED = 600, 7
JSON = {"Content-Type": "application/json"}
JUNK = (
    None, True, -1, 0, 7, 1e308, 10**400, float("nan"), float("-inf"), "", "x", "\ud800", "..", "page.children",
    "?prompt=%ff%00&position=1e99&temperature=nan", "/neuron/L9999999999999999999N1", [], {}, [[]], [None],
    {"id": {"a": 1}, "property": "value"}, {"question": 1}, [1, 2, 3, 4, 5], {"set": "much"}, {"generate": 1e300},
)  # fmt: skip
SEARCH = f"?{urlencode({'prompt': JORDAN, 'answer': ' basketball', 'set': 1})}"
VALUES = {
    "location.search": SEARCH, "save-table.value": "tokens", "screen.data": {"dark": True},
    "live.data": {"set": 2.0}, "temperature.value": "2", "set.value": 1.5, "many.value": 2, "first.data": 1.0,
    "surveying.data": False, "survey-job.data": "x", "saved.id": "saved",
}  # fmt: skip


@pytest.fixture(scope="module")
def known(session):
    """Every callback as a page sends it, from two pages."""
    app = build(session)
    app._setup_server()
    asked = repr(session.question(read_address("/", SEARCH)))
    job = {"question": asked, "name": None, "done": False}
    told = VALUES | {"question.data": asked, "job.data": job}
    listed = [item for item in app.callback_map.items() if "callback" in item[1]]
    bodies = []
    for path, (output, one) in itertools.product(("/", "/neuron/L0N1"), listed):
        values = told | {"location.pathname": path}
        names = [name.partition("@")[0].split(".") for name in output.strip(".").split("...")]
        outputs = [{"id": name, "property": prop} for name, prop in names]
        inputs, state = (
            [p | {"value": values.get(f"{p['id']}.{p['property']}", 1)} for p in one[part]]
            for part in ("inputs", "state")
        )
        changed = [f"{inputs[0]['id']}.{inputs[0]['property']}"]
        bodies.append({"output": output, "outputs": outputs if len(outputs) > 1 else outputs[0],
                       "inputs": inputs, "state": state, "changedPropIds": changed})  # fmt: skip
    return bodies


def places(node, found=()):
    """List every place in a tree of JSON, as the way to it."""
    yield found
    inside = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()  # fmt: skip
    for key, part in inside:
        yield from places(part, (*found, key))


def spoil(chance, body):
    """Change one place of a body: something else, nothing, or twice."""
    body = copy.deepcopy(body)
    *way, last = chance.choice([way for way in places(body) if way])
    node = body
    for key in way:
        node = node[key]
    how = chance.choice(("other", "other", "other", "gone", "twice"))
    if how == "gone":
        del node[last]
    elif how == "twice" and isinstance(node, list):
        node.append(node[last])
    else:
        node[last] = chance.choice(JUNK)
    return body


def test_malformed_callbacks_are_refused_in_words_and_none_fails(explorer, known, caplog, capfd):
    chance, client = random.Random(SEED), Client(explorer)
    texts = [json.dumps(spoil(chance, chance.choice(known))) for _ in range(MANY)]
    texts += ["", "{", "[" * 100_000, '{"output":' * 5_000, "null", "[]", '"x"', "{}", b"\xff\xfe", "1" * 9_999]  # fmt: skip
    texts += [json.dumps(body)[:-9] for body in known]
    seen = []
    for text in texts:
        status, _, said = client.ask("POST", security.PATH, text, **JSON)
        assert status in (200, 204, 400), (status, text)
        if status == 400:
            assert said.decode().strip(), text
            assert b"<" not in said, "words, not a page"
        seen.append(status)
    assert seen.count(400) > MANY / 2
    assert [record.getMessage() for record in caplog.records] == []
    assert "Traceback" not in capfd.readouterr().err


def test_a_page_s_own_callbacks_are_all_admitted(explorer, known):
    for body in known:
        status, _, said = Client(explorer).ask("POST", security.PATH, json.dumps(body), **JSON)
        assert status in (200, 204), (body["output"], said)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"output": "nowhere.children"}, "its output is unknown."),
        ({"outputs": []}, 'the list "outputs" does not match its output.'),
        ({"inputs": []}, 'the list "inputs" does not match its output.'),
        (
            {"state": [{"id": "job", "property": "data"}]},
            'the list "state" does not match its output.',
        ),
        ({"changedPropIds": ["job.data"]}, "what changed is not among its inputs."),
    ],
)
def test_what_does_not_fit_is_named(explorer, known, change, said):
    body = next(body for body in known if body["output"].startswith("..page.children"))
    status, _, told = Client(explorer).ask("POST", security.PATH, json.dumps(body | change), **JSON)  # fmt: skip
    assert (status, told.decode()) == (400, f"this is not a callback of the explorer: {said}\n")
    body = copy.deepcopy(body)
    body["inputs"][0]["value"] = 5
    told = Client(explorer).ask("POST", security.PATH, json.dumps(body), **JSON)[2]
    assert b"the value of location.pathname is of the wrong kind." in told


def test_beyond_what_can_be_answered_it_says_busy_at_once_and_all_are_served_in_the_end(session):
    """Fifty clients at once: some wait, the others are told; asked again, every one gets its page."""
    told, served, slow = [], [], []
    with running(session) as address:

        def use(user):
            client, began = Client(address), time.monotonic()
            inputs = {"location.pathname": "/", "location.search": f"?{urlencode({'prompt': f'{JORDAN} {user}'})}", "screen.data": {}}  # fmt: skip
            while True:
                asked = time.monotonic()
                status, headers, body = client.call(PAGE, inputs)
                if status != 503:
                    served.append((status, b"comes next" in body))
                    slow.append(time.monotonic() - began)
                    return
                told.append((time.monotonic() - asked, headers["Retry-After"], body))
                time.sleep(float(headers["Retry-After"]))

        threads = [threading.Thread(target=use, args=(user,)) for user in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert served == [(200, True)] * 50
    assert told, "nobody was told to wait"
    assert {(after, said) for _, after, said in told} == {("1", b"the explorer is busy: ask again in a second.\n")}  # fmt: skip
    assert sum(wait for wait, _, _ in told) / len(told) < sum(slow) / len(slow), "said early"


def test_idle_connections_hold_no_more_threads_than_allowed_and_keep_nobody_out(session):
    before = threading.active_count()
    with running(session) as address:
        client, idle = Client(address), []
        for _ in range(600):
            idle.append(socket.create_connection((client.host, client.port)))
            assert threading.active_count() - before <= 100
        assert client.ask("GET", "/")[0] == 200
        closed = [connection for connection in idle if _is_closed(connection)]
        assert len(closed) >= 500
        for connection in idle:
            connection.close()


def test_a_connection_that_sends_nothing_is_closed(session, monkeypatch):
    assert server.Quiet.timeout <= 30
    monkeypatch.setattr(server.Quiet, "timeout", 0.2)
    with running(session) as address:
        client = Client(address)
        for sent in (b"", b"GET / HT", b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Le"):
            with socket.create_connection((client.host, client.port), timeout=20) as idle:
                idle.sendall(sent)
                assert idle.recv(1) == b""


def test_where_every_connection_works_the_next_is_told_to_come_back(session, monkeypatch):
    monkeypatch.setattr(server, "CONNECTIONS", 0)
    with running(session) as address:
        status, headers, body = Client(address).ask("GET", "/")
    assert (status, headers["Retry-After"], body) == (503, "1", server.BUSY)


def _is_closed(connection):
    connection.settimeout(0.0)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True

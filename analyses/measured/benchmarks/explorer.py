"""How soon does the explorer answer a click on a neuron, and can it serve twenty users for a minute?

Method: the explorer runs in this process and is asked over HTTP as a browser asks it, from the click
to the last byte of the card; a prompt is open, so the card says what the neuron does on it. On pocket
the goal is one bare forward pass of the prompt and 200 ms; on GPT-2 small's shape the click is shown
as a ratio to the pass. Each click is on a neuron not seen before. Twenty users then click for a
minute, each on pages of its own, and the process's memory after the minute is
compared with that after the first quarter of it.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from urllib.parse import quote

import psutil
import torch

import ffnprobe as fp
from analyses.measured.benchmarks.sizes import Size
from ffnprobe.listening import bind
from ffnprobe.models.bridge import bridge_of
from ffnprobe.views.explorer.server import start
from ffnprobe.views.explorer.session import Session

PROMPT = "Michael Jordan plays the sport of"
USERS, ALLOWED = 20, 0.2
OUTPUTS = ("page.children", "navigation.children", "live.data")


def measure(folder: Path, size: Size) -> list[tuple[str, float, str]]:
    """Return each ratio with its name and its goal."""
    rows = []
    for model, is_pocket in ((fp.load("pocket", device="cpu"), True), (fp.load(folder), False)):
        session = Session(model)
        session.warm()
        bare = _pass(model)
        with _running(session) as port:
            _open(port, "/")  # runs the prompt, which a user has done before the click
            clicks = [_click(port, f"/neuron/L{n % 3}N{n}") for n in range(size.clicks)]
        if is_pocket:
            name = "pocket: click on a neuron to one bare pass and 200 ms"
            rows.append((name, median(clicks) / (bare + ALLOWED), "at most 1"))
        else:
            name = "click on a neuron to one bare forward pass"
            rows.append((name, median(clicks) / bare, "shown"))
            rows.append(("click on a neuron to one bare pass and 200 ms", median(clicks) / (bare + ALLOWED), "shown"))  # fmt: skip
    return rows + _crowd(size.seconds)


def _pass(model: fp.Model) -> float:
    ids, bridge = torch.tensor([fp.run(model, PROMPT).ids]), bridge_of(model)
    times = []
    with torch.no_grad():
        for _ in range(9):
            began = time.perf_counter()
            bridge(ids)
            times.append(time.perf_counter() - began)
    return median(times)


def _crowd(seconds: float) -> list[tuple[str, float, str]]:
    """Let twenty users click for a minute."""
    session, lost, answered, sizes = Session(fp.load("pocket", device="cpu")), [0], [0], []
    session.warm()
    with _running(session) as port:
        end = time.monotonic() + seconds

        def use(user: int) -> None:
            number = 0
            while time.monotonic() < end:
                number += 1
                name = f"L{number % 6}N{(user * 31 + number) % 768}"
                path = "/" if number % 3 == 0 else f"/neuron/{name}"
                try:
                    body = _open(port, path, prompt=f"{PROMPT} {user} {number}")
                    is_right = (b"comes next" if path == "/" else name.encode()) in body
                except OSError:
                    is_right = False
                answered[0] += 1
                lost[0] += not is_right

        threads = [threading.Thread(target=use, args=(user,)) for user in range(USERS)]
        for thread in threads:
            thread.start()
        for _ in range(4):
            time.sleep(seconds / 4)
            sizes.append(psutil.Process().memory_info().rss)
        for thread in threads:
            thread.join()
    return [
        (f"{USERS} users: clicks lost of {answered[0]:,}", float(lost[0]), "0"),
        (f"{USERS} users: memory at the end to that at a quarter", sizes[-1] / sizes[0], "at most 1.05"),
    ]  # fmt: skip


@contextmanager
def _running(session: Session) -> Iterator[int]:
    with bind("127.0.0.1", 0) as listening:
        server, _ = start(session, listening, "127.0.0.1", has_token=False)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield int(listening.getsockname()[1])
        server.shutdown()
        thread.join()
        server.server_close()


def _click(port: int, path: str) -> float:
    began = time.perf_counter()
    _open(port, path)
    return time.perf_counter() - began


def _open(port: int, path: str, *, prompt: str = PROMPT) -> bytes:
    """Ask for a page as the browser does; return what it is drawn from."""
    given = {
        "location.pathname": path,
        "location.search": f"?prompt={quote(prompt)}",
        "screen.data": {},
    }
    split = [name.split(".") for name in OUTPUTS]
    asked = {
        "output": f"..{'...'.join(OUTPUTS)}..",
        "outputs": [{"id": name, "property": prop} for name, prop in split],
        "inputs": [{"id": n.split(".")[0], "property": n.split(".")[1], "value": v} for n, v in given.items()],
        "changedPropIds": list(given),
        "state": [],
    }  # fmt: skip
    connection = HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("POST", "/_dash-update-component", json.dumps(asked), {"Content-Type": "application/json"})  # fmt: skip
    reply = connection.getresponse()
    body = reply.read()
    connection.close()
    if reply.status != 200:
        raise OSError(f"{path}: {reply.status}")
    return body

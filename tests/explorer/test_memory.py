"""The explorer's memory over many different pages: it grows while the cache fills, then it stays."""

import os
from urllib.parse import urlencode

import psutil

from ffnprobe.views.explorer.server import build
from ffnprobe.views.explorer.session import Session
from tests.conftest import JORDAN
from tests.explorer.client import CALLBACK, PAGE, name_inputs, write_call

# The second half of the requests may add as much.
MANY = int(os.environ.get("FFNPROBE_REQUESTS", "600"))
GROWTH = 40 * 2**20
WORDS = ("basketball", "golf", "tennis", "Paris", "music", "soccer", "France", "piano")


def name_page(number, relations):
    """Write the address of a page: prompts, neurons, circuits, searches, facts; hardly one of them twice."""
    word, layer = WORDS[number % len(WORDS)], number % 7
    prompt = {"prompt": f"{JORDAN}{' very' * (number % 9)} {number}"}
    pages = (
        ("/", prompt),
        ("/", prompt | {"answer": f" {word}"}),
        (f"/neuron/L{layer}N{number % 500}", prompt),
        (f"/neuron/L{layer}N{number % 499}", {}),
        ("/search", {"token": f" {word}", "layers": str(layer)}),
        ("/circuit", prompt | {"answer": f" {word}"}),
        ("/facts", {"relation": relations[number % len(relations)]}),
        (f"/nowhere/{number}", {}),
    )
    path, asked = pages[number % len(pages)]
    return path, f"?{urlencode(asked)}"


def test_memory_stays_over_many_pages(pocket):
    session = Session(pocket)
    session.warm()
    relations = sorted({row.relation for row in session.facts.rows})
    client = build(session).server.test_client()
    process, sizes = psutil.Process(), []
    for number in range(MANY):
        asked = write_call(PAGE, name_inputs(*name_page(number, relations)))
        reply = client.post(CALLBACK, json=asked, base_url="http://127.0.0.1")
        assert reply.status_code == 200, reply.text
        sizes.append(process.memory_info().rss)
    shown = [sizes[n - 1] for n in range(100, MANY + 1, 100)]
    print(f"{MANY} pages, MB at every 100th:", *(size // 2**20 for size in shown))
    assert sizes[-1] - sizes[MANY // 2 - 1] < GROWTH
    assert len(session.cache) <= 64

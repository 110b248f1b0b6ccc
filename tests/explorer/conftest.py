"""Explorers that run, and a browser to open them in."""

import shutil
import threading
from contextlib import contextmanager

import pytest

import ffnprobe as fp
from ffnprobe.listening import bind
from ffnprobe.views.explorer.server import start
from ffnprobe.views.explorer.session import Session
from tests.conftest import JORDAN
from tests.views.conftest import hostile  # noqa: F401  (a fixture)

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


@contextmanager
def running(session, host="127.0.0.1", **options):
    """Serve a session in a thread; give its address."""
    with bind(host, 0) as listening:
        server, address = start(session, listening, host, **options)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield address
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


@pytest.fixture(scope="session")
def session(pocket):
    scan = fp.scan(pocket, {"one": f"{JORDAN} basketball. Tiger Woods plays the sport of golf."})
    made = Session(pocket, scan)
    made.warm()
    return made


@pytest.fixture(scope="session")
def explorer(session):
    with running(session) as address:
        yield address


@pytest.fixture(scope="session")
def hostile_explorer(hostile):  # noqa: F811
    with running(Session(hostile)) as address:
        yield address


# Of a module: two drivers cannot run in one thread at a time.
@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("needs Chromium or Chrome, and none is installed here")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield found
        found.close()

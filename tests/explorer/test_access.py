"""Who may use the explorer: whoever has the token in the address that was printed."""

import stat
import threading
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import pytest

from ffnprobe.views.explorer import server
from tests.explorer.client import Client
from tests.explorer.conftest import running


@pytest.fixture
def stranger(explorer):
    """Another user of the machine: knows the port, not the token."""
    return Client(explorer.partition("?")[0])


REFUSED = b"open the address that `ffnprobe explore` printed"


@pytest.mark.parametrize(
    "path", ["/", "/facts", "/_dash-layout", "/_dash-dependencies", "/assets/script.js", "/nowhere"]
)
def test_without_the_token_nothing_is_answered(stranger, path):
    for method in ("GET", "HEAD", "POST"):
        status, headers, body = stranger.ask(method, path)
        assert status == 403, method
        assert method == "HEAD" or REFUSED in body
        assert "Set-Cookie" not in headers
    inputs = {"location.pathname": "/facts", "location.search": "", "screen.data": None}
    assert stranger.call(("page.children", "navigation.children", "live.data"), inputs)[0] == 403


@pytest.mark.parametrize("wrong", ["", "x", "é", "\ud800", "almost", "none"])
def test_a_wrong_token_is_refused_in_the_address_and_in_the_cookie(explorer, stranger, wrong):
    token = Client(explorer).token
    given = {"almost": token[:-1], "none": f"{token}x"}.get(wrong, wrong)
    typed = quote(given, errors="surrogatepass")
    assert stranger.ask("GET", f"/?access_token={typed}")[0] == 403
    cookie = {"Cookie": f"ffnprobe-{stranger.port}={typed}"}
    assert stranger.ask("GET", "/", **cookie)[0] == 403


def test_the_address_sets_a_strict_cookie_and_leads_on_without_the_token(explorer, stranger):
    token = Client(explorer).token
    status, headers, body = stranger.ask("GET", f"/search?token=+a&access_token={token}&rank=z")
    assert status == 200
    said = headers["Set-Cookie"]
    assert said.startswith(f"ffnprobe-{stranger.port}={token};")
    assert "HttpOnly" in said
    assert "SameSite=Strict" in said
    assert b"url=/search?token=+a&amp;rank=z" in body
    assert token.encode() not in body
    away = stranger.ask("GET", f"//evil.example/?access_token={token}")[2]
    assert b"//evil" not in away
    assert len(token) >= 32, "nobody guesses it"


def test_each_start_has_a_token_of_its_own_and_none_on_request(session, explorer):
    with running(session) as address:
        assert Client(address).token != Client(explorer).token
    with running(session, has_token=False) as address:
        assert urlsplit(address).query == ""
        assert Client(address).ask("GET", "/")[0] == 200


def test_tokens_are_compared_in_constant_time(explorer, stranger, monkeypatch):
    from ffnprobe import listening

    compared = []
    monkeypatch.setattr(listening.hmac, "compare_digest", lambda *pair: compared.append(pair))
    assert stranger.ask("GET", "/?access_token=x")[0] == 403
    assert compared == [(b"x", Client(explorer).token.encode())]


def test_the_browser_is_given_a_private_file_not_the_token(monkeypatch):
    opened, seen = threading.Event(), []
    monkeypatch.setattr(server.webbrowser, "open", lambda url: (seen.append(url), opened.set()))
    with server.open_browser("http://127.0.0.1:1/?access_token=secret"):
        assert opened.wait(10)
        assert "secret" not in seen[0]
        file = Path(unquote(urlsplit(seen[0]).path))
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert "url=http://127.0.0.1:1/?access_token=secret" in file.read_text()
    assert not file.exists()


@pytest.mark.parametrize("length", ['" 5"', "+5", "-1", "5_0", "٣", "5, 5", "0x5", "5.0"])
def test_a_length_that_is_not_a_number_is_refused(explorer, length):
    said = {"Content-Length": length.encode(), "Content-Type": "application/json"}
    status, _, body = Client(explorer).ask("POST", "/_dash-update-component", b"hello", **said)
    assert (status, body) == (400, b"Content-Length is not a number.\n")

"""`serve` as a shell sees it, before it serves: what it refuses, in words."""

import socket

import pytest

from ffnprobe.cli import servers
from tests.cli.runner import refused

pytest.importorskip("mcp", reason="needs the extra mcp")


def test_what_serve_refuses(tmp_path, tiny_folder):
    assert "must be named" in refused("serve")
    assert "does not print or write" in refused("serve", "--mcp", "--out", tmp_path / "x.csv")
    assert '"gtp2" is not a known model' in refused("serve", "--mcp", "--also", "gtp2")
    assert "two models have the name" in refused(
        "serve", "--mcp", "--model", tiny_folder, "--also", tiny_folder
    )
    assert "there is no file of facts" in refused("serve", "--mcp", "--facts", tmp_path / "no.csv")
    assert "no scan" in refused("serve", "--mcp", "--store", tmp_path)
    assert "--memory -1 is not" in refused("serve", "--mcp", "--memory", "-1")


def test_a_port_in_use_is_refused_with_a_free_one():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused("serve", "--mcp", "--http", "--port", str(port))
    assert f"port {port} is in use" in said
    assert "try: --port" in said


def test_without_the_sdk_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(servers, "find_spec", lambda package: None)
    assert "needs the package mcp" in refused("serve", "--mcp")

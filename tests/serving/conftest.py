"""A service of the embedded model, and servers in processes of their own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="needs the extra mcp")

from ffnprobe.serving.service import ServedModels, Service

ROOT = Path(__file__).parents[2]
TOKEN = "a-token-of-the-tests"
COMMAND = [sys.executable, "-m", "ffnprobe", "serve", "--mcp"]


@dataclass(frozen=True)
class HttpServer:
    address: str
    process: subprocess.Popen[str]


@pytest.fixture(scope="session")
def service() -> Service:
    return Service(ServedModels(["pocket"], device="cpu", most_bytes=2**31))


@pytest.fixture(scope="session")
def environment(cache: Path) -> dict[str, str]:
    """What a server is started with: this checkout, the tests' own cache, one thread."""
    known = {"PYTHONPATH": str(ROOT), "FFNPROBE_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    return {"PATH": os.environ["PATH"], "FFNPROBE_TOKEN": TOKEN, **known}


@pytest.fixture(scope="session")
def http_server(environment: dict[str, str]) -> Iterator[HttpServer]:
    """A server on a free port."""
    started = subprocess.Popen(
        [*COMMAND, "--http", "--port", "0"],
        env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert started.stdout is not None
    address = started.stdout.readline().strip()
    assert address.startswith("http://127.0.0.1:"), address
    assert started.stdout.readline() == f"token {TOKEN}\n"
    yield HttpServer(address, started)
    started.terminate()
    started.wait(timeout=20)

"""`ffnprobe serve --mcp`: the verbs as tools for agents."""

import importlib.util
import os
import sys
from pathlib import Path
from typing import Annotated

from ffnprobe.cli.command import Common, command
from ffnprobe.cli.explore import name_install
from ffnprobe.errors import OptionRefused
from ffnprobe.options import Option

TOKEN = "FFNPROBE_TOKEN"


@command
def serve(
    common: Common,
    mcp: Annotated[bool, Option("Speak MCP, the Model Context Protocol.")] = False,
    also: Annotated[
        list[str] | None, Option("Serve this model too, by name.", metavar="NAME")
    ] = None,
    facts: Annotated[
        list[Path] | None,
        Option("Serve this table of facts too, by name.", metavar="FILE"),
    ] = None,
    store: Annotated[
        list[Path] | None,
        Option("Show examples and labels of this scan.", metavar="DIR"),
    ] = None,
    http: Annotated[bool, Option("Listen on 127.0.0.1 with a token, instead of stdio.")] = False,
    port: Annotated[int, Option("The port of --http; 0 picks a free one.")] = 8051,
    memory: Annotated[
        float, Option("Unload the least used models above this much memory.", metavar="GB")
    ] = 8.0,
) -> None:
    """Serve explain, run, read, search, … as tools over MCP, from one running process.

    On stdio the client starts it and ends it. With --http the address and the token are printed; set
    FFNPROBE_TOKEN to choose the token.
    """
    common.refuse_output("serve does not print or write a result.", remedy="leave these out")
    if not mcp:
        raise OptionRefused("serve speaks one protocol, which must be named.", remedy="--mcp")
    if not 0 < memory <= 1e6:
        raise OptionRefused(f"--memory {memory:g} is not a number of GB.", remedy="8")
    if not http and sys.stdin is None:
        raise OptionRefused(
            "standard input is closed, so no client can ask over it.", remedy="--http"
        )
    if importlib.util.find_spec("mcp") is None:
        raise OptionRefused(
            "serving needs the package mcp, which is not installed.", remedy=name_install("mcp")
        )
    from ffnprobe.cli.threads import read_threads, use_threads
    from ffnprobe.corpora.scans import Scan
    from ffnprobe.listening import bind
    from ffnprobe.serving.models import GB, ServedModels
    from ffnprobe.serving.protocol import build_server
    from ffnprobe.serving.service import Service
    from ffnprobe.serving.transports import HOST, PATH, serve_http, serve_stdio

    models = ServedModels(
        [common.model_name, *(also or [])], device=common.device, most_bytes=int(memory * GB)
    )
    tables = {path.stem: str(path) for path in facts or []}
    for path in tables.values():
        if not os.path.exists(path):
            raise OptionRefused(f"there is no file of facts {path}.")
    scans = [Scan.open(folder) for folder in store or []]
    service = Service(models, {"pocket": "pocket"} | tables, scans=scans)
    listening = bind(HOST, port) if http else None
    model = models.get(None)
    if not also:
        for scan in scans:
            scan.check(model)
    use_threads(read_threads(common.threads), model.config.parameters())
    common.note(f"serving {', '.join(models.sources)} over MCP")
    server = build_server(service)
    if listening is None:
        serve_stdio(server)
        return
    import secrets

    token = os.environ.get(TOKEN) or secrets.token_urlsafe(24)
    with listening:
        print(f"http://{HOST}:{listening.getsockname()[1]}{PATH}", flush=True)
        print(f"token {token}", flush=True)
        serve_http(server, listening, token)

"""`explore` and `serve --mcp`: commands that listen, for people in a browser and for agents."""

import json
import os
import sys
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from ffnprobe.arguments import HOOKS, STORE, Option
from ffnprobe.cli.command import command
from ffnprobe.cli.invocation import Common, open_store, read_threads, use_threads
from ffnprobe.errors import OptionRefused

TOKEN = "FFNPROBE_TOKEN"
NO_TOKEN = Option("Do not ask for the access token: for tunnels that have their own.")
ALSO = Option("Serve this model too, by name.", metavar="NAME")
TABLES = Option("Serve this table of facts too, by name.", metavar="FILE")
SCANS = Option("Show examples and labels of this scan.", metavar="DIR")
MEMORY = Option("Unload the least used models above this much memory.", metavar="GB")
FACTS = Option("Facts to choose prompts from.", metavar="FILE", default="those of pocket")
ADDRESS = Option(
    "The address to listen on; at any other than 127.0.0.1, other machines can connect."
)


@command
def explore(
    common: Common,
    store: Annotated[str | None, STORE] = None,
    facts: Annotated[Path | None, FACTS] = None,
    port: Annotated[int, Option("The port to listen on; 0 picks a free one.")] = 8050,
    host: Annotated[str, ADDRESS] = "127.0.0.1",
    no_open: Annotated[bool, Option("Print the address, but do not open a browser.")] = False,
    hooks: Annotated[bool, HOOKS] = False,
    no_token: Annotated[bool, NO_TOKEN] = False,
) -> None:
    """Explore prompts, neurons, searches and facts in a browser; Ctrl+C ends it."""
    common.refuse_output(
        "explore does not print or write a result.", remedy='"Export" at the end of each page'
    )
    check_installed("the explorer", "dash", extra="explore")
    from ffnprobe.listening import LOCAL, bind
    from ffnprobe.views.explorer.server import open_browser, start
    from ffnprobe.views.explorer.session import Session

    with bind(host, port) as listening:
        model = common.load(hooks=hooks, has_own_threads=True)
        table = "pocket" if facts is None else str(facts)
        session = Session(model, open_store(model, store), table)
        common.note(f"{len(session.facts.rows):,} facts of {session.facts.source}")
        if session.facts.problems:
            first = session.facts.problems[0]
            left = f"{len(session.facts.problems):,} rows are left out"
            common.note(f"{left}, the first {first.where}: {first.problem}")
        if host not in LOCAL:
            common.note("other machines can connect, over a connection that is not encrypted")
        if no_token:
            common.note(
                "without a token, everybody who can connect can read prompts, facts and texts"
            )
        session.warm()
        server, address = start(session, listening, host, has_token=not no_token)
        print(address, flush=True)
        common.note("Ctrl+C ends it")
        try:
            with nullcontext() if no_open else open_browser(address):
                server.serve_forever()
        except KeyboardInterrupt:
            common.note("ended.")
        finally:
            server.server_close()


def check_installed(work: str, package: str, *, extra: str) -> None:
    """Refuse work that needs a package which is not there."""
    if find_spec(package) is None:
        why = f"{work} needs the package {package}, which is not installed."
        raise OptionRefused(why, remedy=name_install(extra))


def name_install(extra: str) -> str:
    """Write the command that installs an extra, in the form in which this package was installed."""
    # Imported here: it takes a fifth of what `ffnprobe --help` does.
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        told = json.loads(distribution("ffnprobe").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        told = {}
    where = str(told.get("url", "")).removeprefix("file://")
    if told.get("dir_info", {}).get("editable"):
        return f'pip install -e "{where}[{extra}]"'
    return f'pip install "{where or "ffnprobe"}[{extra}]"'


@command
def serve(
    common: Common,
    mcp: Annotated[bool, Option("Speak MCP, the Model Context Protocol.")] = False,
    also: Annotated[list[str] | None, ALSO] = None,
    facts: Annotated[list[Path] | None, TABLES] = None,
    store: Annotated[list[Path] | None, SCANS] = None,
    http: Annotated[bool, Option("Listen on 127.0.0.1 with a token, instead of stdio.")] = False,
    port: Annotated[int, Option("The port of --http; 0 picks a free one.")] = 8051,
    memory: Annotated[float, MEMORY] = 8.0,
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
        why = "standard input is closed, so no client can ask over it."
        raise OptionRefused(why, remedy="--http")
    check_installed("serving", "mcp", extra="mcp")
    from ffnprobe.corpora.scans import Scan
    from ffnprobe.listening import bind
    from ffnprobe.serving.protocol import AgentServer
    from ffnprobe.serving.service import GB, ServedModels, Service
    from ffnprobe.serving.transports import HOST, PATH, serve_http, serve_stdio

    names = [common.model_name, *(also or [])]
    models = ServedModels(names, device=common.device, most_bytes=int(memory * GB))
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
    server = AgentServer(service)
    if listening is None:
        serve_stdio(server)
        return
    import secrets

    token = os.environ.get(TOKEN) or secrets.token_urlsafe(24)
    with listening:
        print(f"http://{HOST}:{listening.getsockname()[1]}{PATH}", flush=True)
        print(f"token {token}", flush=True)
        serve_http(server, listening, token)

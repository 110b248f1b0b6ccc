"""`ffnprobe explore`: from a prompt to a neuron, in a browser."""

import importlib.util
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

from ffnprobe.cli.command import Common, command
from ffnprobe.cli.terminal import open_store
from ffnprobe.errors import OptionRefused
from ffnprobe.options import HOOKS, STORE, Option


@command
def explore(
    common: Common,
    store: Annotated[str | None, STORE] = None,
    facts: Annotated[
        Path | None,
        Option("Facts to choose prompts from.", metavar="FILE", default="those of pocket"),
    ] = None,
    port: Annotated[int, Option("The port to listen on; 0 picks a free one.")] = 8050,
    host: Annotated[
        str,
        Option(
            "The address to listen on; at any other than 127.0.0.1, other machines can connect."
        ),
    ] = "127.0.0.1",
    no_open: Annotated[bool, Option("Print the address, but do not open a browser.")] = False,
    hooks: Annotated[bool, HOOKS] = False,
    no_token: Annotated[
        bool, Option("Do not ask for the access token: for tunnels that have their own.")
    ] = False,
) -> None:
    """Explore prompts, neurons, searches and facts in a browser; Ctrl+C ends it."""
    common.refuse_output(
        "explore does not print or write a result.", remedy='"Export" at the end of each page'
    )
    if not has_dash():
        raise OptionRefused(
            "the explorer needs the package dash, which is not installed.",
            remedy=name_install("explore"),
        )
    from ffnprobe.listening import LOCAL, bind
    from ffnprobe.views.explorer.server import open_browser, start
    from ffnprobe.views.explorer.session import Session

    with bind(host, port) as listening:
        model = common.load(hooks=hooks, has_own_threads=True)
        session = Session(
            model, open_store(model, store), "pocket" if facts is None else str(facts)
        )
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


def has_dash() -> bool:
    """Say whether dash is installed."""
    return importlib.util.find_spec("dash") is not None

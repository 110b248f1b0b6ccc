"""`ffnprobe explore`: from a prompt to a neuron, in a browser."""

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from ffnprobe.cli.command import Common, Format, command
from ffnprobe.cli.options import StoreOption, open_store
from ffnprobe.errors import OptionRefused


@command
def explore(
    common: Common,
    store: StoreOption = None,
    facts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Facts to choose prompts from.", show_default="those of pocket"
        ),
    ] = None,
    port: Annotated[int, typer.Option(help="The port to listen on; 0 picks a free one.")] = 8050,
    host: Annotated[
        str,
        typer.Option(
            help="The address to listen on; other than 127.0.0.1, other machines can connect."
        ),
    ] = "127.0.0.1",
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Print the address, but do not open a browser.")
    ] = False,
) -> None:
    """Explore prompts, neurons, searches and facts in a browser; Ctrl+C ends it."""
    if common.out or common.html or common.plot or common.format is not Format.table:
        raise OptionRefused(
            "explore does not print or write a result.",
            remedy='"Export" at the end of each page',
        )
    if not has_dash():
        raise OptionRefused(
            "the explorer needs the package dash, which is not installed.",
            remedy='pip install "ffnprobe[explore]", or pip install "dash>=4,<5"',
        )
    from ffnprobe.views.explorer.security import LOCAL
    from ffnprobe.views.explorer.server import bind, open_browser, start
    from ffnprobe.views.explorer.session import Session

    with bind(host, port) as listening:
        model = common.load()
        session = Session(
            model, open_store(model, store), "pocket" if facts is None else str(facts)
        )
        common.note(f"{len(session.facts.rows):,} facts of {session.facts.source}")
        if session.facts.problems:
            first = session.facts.problems[0]
            left = f"{len(session.facts.problems):,} rows are left out"
            common.note(f"{left}, the first {first.where}: {first.problem}")
        if host not in LOCAL:
            common.note("other machines can connect; there is no password")
        session.warm()
        server, address = start(session, listening, host)
        print(address, flush=True)
        common.note("Ctrl+C ends it")
        if not no_open:
            open_browser(address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            common.note("ended.")
        finally:
            server.server_close()


def has_dash() -> bool:
    """Say whether dash is installed."""
    return importlib.util.find_spec("dash") is not None

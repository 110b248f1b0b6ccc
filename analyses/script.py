"""What every script of `analyses/` shares: its options, and errors in words."""

import sys
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path

from ffnprobe.errors import FfnProbeError
from ffnprobe.views.saving import check_target


def new_parser(
    docstring: str | None, *, quick: str | None = None, model: bool = False
) -> ArgumentParser:
    """Start a script's options: its question as description, `--html`, maybe `--quick`, `--model`."""
    parser = ArgumentParser(description=(docstring or "").partition("\n")[0])
    if model:
        parser.add_argument("--model", default="pocket", help="a model's name or folder")
    if quick is not None:
        parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--html", type=_page, help="write a page with the figures to this file")
    return parser


def _page(name: str) -> Path:
    """Refuse a page that could not be written before any work is done."""
    path = Path(name)
    check_target(path, (".html",))
    return path


def run_script(main: Callable[[], None]) -> None:
    """Run a script's main; a stated error is printed without a traceback and ends it with 1."""
    try:
        main()
    except FfnProbeError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None

"""The entry point of the command line: every command is registered here."""

import gc

from ffnprobe.cli import (  # noqa: F401  (importing registers the command)
    ablate,
    attribute,
    explain,
    explore,
    models,
    params,
    paths,
    read,
    run,
    scan,
    score,
    search,
    stages,
    steer,
    survey,
)
from ffnprobe.cli.command import app


def main() -> None:
    """Run the command line; exit 0 done, 1 a stated error, 2 wrong usage, 130 interrupted."""
    # Importing makes many objects but no garbage; collecting would take a quarter of the start.
    gc.set_threshold(100_000, 50, 50)
    try:
        app()
    finally:
        # Skip the last collection when the process ends.
        gc.freeze()

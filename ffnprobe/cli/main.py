"""The command line's entry: every command registered, interrupts and closed pipes handled."""

import os
import sys

from ffnprobe.cli import models, params, run  # noqa: F401  (importing registers the command)
from ffnprobe.cli.command import app


def main() -> None:
    """Run the command line; exit 0 done, 1 a stated error, 2 wrong usage, 130 interrupted."""
    try:
        app()
    except KeyboardInterrupt:
        print("interrupted: nothing was written.", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # The reader (head, less) has seen enough; Python would complain when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)

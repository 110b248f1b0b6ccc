"""The entry point of the command line: importing the modules of commands registers these."""

import gc
import io
import os
import signal
import sys
from typing import NoReturn

from ffnprobe.cli import edit, other_commands, resumable, servers, verb_commands  # noqa: F401
from ffnprobe.cli.command import app
from ffnprobe.cli.failures import ClosedOutput, flush_output, restate


def main() -> None:
    """Run the command line; exit 0 done, 1 a stated error, 2 wrong usage, 130 interrupted, 143 ended."""
    # Importing makes many objects and no garbage: looking for some takes a quarter of the start.
    gc.set_threshold(100_000, 50, 50)
    _hold_streams()
    signal.signal(signal.SIGTERM, _end)
    try:
        app()
    except Exception as error:  # outside of a command: its help, its imports
        if (stated := restate(error)) is None:
            raise
        print(f"error: {stated}", file=sys.stderr)
        sys.exit(1)
    finally:
        flush_output()
        # Skip the last collection when the process ends.
        gc.freeze()


def _hold_streams() -> None:
    """Give closed streams a file, so that no result is opened in them; write what can be written."""
    # A file takes the lowest number that is free.
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    if sys.stderr is None:  # and `print` would take standard output instead
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = ClosedOutput()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A character that the terminal's encoding lacks is written as a question mark.
        sys.stdout.reconfigure(errors="replace")


def _end(number: int, frame: object) -> NoReturn:
    """End as an error does, so that what was begun is tidied up."""
    sys.exit(128 + number)

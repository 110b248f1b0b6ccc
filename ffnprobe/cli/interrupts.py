"""Ctrl-C at every moment of a command: one line, and exit code 130.

While a command works, Ctrl-C is an exception, as in all of Python, and the command says what it has kept. But
an exception that comes while modules are imported may get lost there, or abort the process; before and
after the work there is nobody to catch it. At these moments nothing is half done, and the process ends at once.
"""

import os
import signal
from types import FrameType

_IMPORTING = "<frozen importlib._bootstrap>"
_BEFORE = "nothing was written."
_DURING = "run the same command again."
_AFTER = "the command had ended."


class _Moment:
    """Where the command is: what Ctrl-C says when it ends the process at once."""

    says = _BEFORE
    process = 0


def take_interrupts() -> None:
    """Answer Ctrl-C from now on, unless whoever started the process has it ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        _Moment.process = os.getpid()
        signal.signal(signal.SIGINT, _interrupt)


def begin_work() -> None:
    """Note that whoever calls this catches Ctrl-C from now on."""
    _Moment.says = _DURING


def end_work() -> None:
    """Note that all is said and done, and the process only has to end."""
    _Moment.says = _AFTER


def _interrupt(number: int, frame: FrameType | None) -> None:
    if os.getpid() == _Moment.process and (_Moment.says != _DURING or _is_importing(frame)):
        try:
            os.write(2, f"interrupted: {_Moment.says}\n".encode())
        finally:
            os._exit(130)
    raise KeyboardInterrupt


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTING:
            return True
        frame = frame.f_back
    return False

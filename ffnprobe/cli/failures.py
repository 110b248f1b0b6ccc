"""What ends a command from outside, said in one line: Ctrl-C, and what a machine refuses.

While a command works, Ctrl-C is an exception, as in all of Python, and the command says what it has kept. But
an exception that comes while modules are imported may get lost there, or abort the process; before and
after the work there is nobody to catch it. At these moments nothing is half done, and the process ends at
once, with exit code 130. Compiled code may turn the exception into an error of its own, and a destructor
loses it: the first counts as Ctrl-C all the same, the second is raised again.
"""

import atexit
import errno
import io
import os
import signal
import sys
from threading import Timer
from types import FrameType
from typing import TYPE_CHECKING

from ffnprobe.errors import FfnProbeError

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_IMPORTING = "<frozen importlib._bootstrap>"
_DURING = "run the same command again."
# What torch, the loader of shared libraries and threads say when memory is short.
_MEMORY = (
    "allocate memory", "failed to map segment", "out of memory", "start new thread", "bad_alloc",
)  # fmt: skip
_OUTPUT = (errno.EBADF, errno.ENOSPC, errno.EIO)
_PIPE = (errno.EPIPE, errno.ESHUTDOWN)


class _Moment:
    """Where the command is: what Ctrl-C says when it ends the process at once."""

    says = "nothing was written."
    process = 0
    is_interrupted = False


def take_interrupts() -> None:
    """Answer Ctrl-C from now on, unless whoever started the process has it ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        _Moment.process = os.getpid()
        sys.unraisablehook = _raise_again
        signal.signal(signal.SIGINT, _interrupt)
        # Python takes a handler away before its own end, and Ctrl-C would kill a command that is done.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


def begin_work() -> None:
    """Note that whoever calls this catches Ctrl-C from now on."""
    _Moment.says = _DURING


def end_work() -> None:
    """Note that all is said and done, and the process only has to end."""
    _Moment.says = "the command had ended."


def _interrupt(number: int, frame: FrameType | None) -> None:
    if os.getpid() == _Moment.process and (_Moment.says != _DURING or _is_importing(frame)):
        try:
            os.write(2, f"interrupted: {_Moment.says}\n".encode())
        finally:
            os._exit(130)
    _Moment.is_interrupted = True
    raise KeyboardInterrupt


def _raise_again(lost: "UnraisableHookArgs") -> None:
    if lost.exc_type is KeyboardInterrupt:
        Timer(0.01, os.kill, (os.getpid(), signal.SIGINT)).start()
    else:
        sys.__unraisablehook__(lost)


def restate_interrupt(error: BaseException) -> str | None:
    """Say what ended a command if it was Ctrl-C, whatever compiled code has made of the exception."""
    if isinstance(error, KeyboardInterrupt):
        return str(error) or "nothing was written."
    return _DURING if _Moment.is_interrupted else None


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename != _IMPORTING:
        frame = frame.f_back
    return frame is not None


class ClosedOutput(io.TextIOBase):
    """Stands in for a standard output that was closed: writing to it fails, importing does not."""

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, "it is closed")


def restate(error: BaseException) -> FfnProbeError | None:
    """Say a failure of the machine in words; None for an error that is a mistake of ours."""
    if is_memory(error):
        remedy = "a smaller model, fewer workers, or a higher limit (ulimit -v)"
        return FfnProbeError("there is not enough memory.", remedy=remedy)
    if isinstance(error, OSError) and error.errno not in (None, *_PIPE):
        if error.filename is None and error.errno in _OUTPUT:
            return _no_output(error)
        named = "" if error.filename is None else f"{error.filename}: "
        return FfnProbeError(f"{named}{error.strerror or error}.")
    if isinstance(error, RecursionError):
        return FfnProbeError("something handed in is nested too deeply to be read.")
    return None


def is_memory(error: BaseException) -> bool:
    """Say whether an error, or what caused it, is that memory is short."""
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return True
    is_said = any(words in str(error) for words in _MEMORY)
    if is_said and isinstance(error, RuntimeError | ImportError | OSError):
        return True
    return error.__cause__ is not None and is_memory(error.__cause__)


def flush_output() -> FfnProbeError | None:
    """Write what standard output still holds, or say why it cannot be written."""
    try:
        sys.stdout.flush()
    except OSError as error:
        # What is held would be written again when the process ends, and fail with a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return None if error.errno in _PIPE else _no_output(error)
    return None


def _no_output(error: OSError) -> FfnProbeError:
    return FfnProbeError(
        f"standard output cannot be written: {error.strerror}.", remedy="--out FILE"
    )

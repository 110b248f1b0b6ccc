"""What a machine refuses (memory, files, standard output), said in one line as our own errors are."""

import errno
import io
import os
import sys

from ffnprobe.errors import FfnProbeError

# What torch, the loader of shared libraries and threads say when memory is short.
_MEMORY = (
    "allocate memory",
    "failed to map segment",
    "out of memory",
    "start new thread",
    "bad_alloc",
)
_OUTPUT = (errno.EBADF, errno.ENOSPC, errno.EIO)
_PIPE = (errno.EPIPE, errno.ESHUTDOWN)


class ClosedOutput(io.TextIOBase):
    """Stands in for a standard output that was closed: writing to it fails, importing does not."""

    def write(self, text: str) -> int:
        """Fail as a closed file does."""
        raise OSError(errno.EBADF, "it is closed")


def restate(error: Exception) -> FfnProbeError | None:
    """Say a failure of the machine in words; None for an error that is a mistake of ours."""
    if is_memory(error):
        return FfnProbeError(
            "there is not enough memory.",
            remedy="a smaller model, fewer workers, or a higher limit (ulimit -v)",
        )
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
    if isinstance(error, RuntimeError | ImportError | OSError) and any(
        words in str(error) for words in _MEMORY
    ):
        return True
    return error.__cause__ is not None and is_memory(error.__cause__)


def flush_output() -> FfnProbeError | None:
    """Write what standard output still holds, or say why it cannot be written."""
    try:
        sys.stdout.flush()
    except OSError as error:
        # What is held would be written again when the process ends, and fail with a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if error.errno in _PIPE:
            return None
        return _no_output(error)
    return None


def _no_output(error: OSError) -> FfnProbeError:
    return FfnProbeError(
        f"standard output cannot be written: {error.strerror}.", remedy="--out FILE"
    )

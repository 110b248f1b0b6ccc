"""Write files whole or not at all: under a temporary name first, then renamed over the old one.

The temporary name holds the process's number (`.ffnprobe.4711.9f2c…`). A file keeps the mode it had,
a link is followed, and the folder is synced too, so that a finished write survives a power cut.
"""

import os
import secrets
import shlex
import stat
from contextlib import suppress
from pathlib import Path

from ffnprobe.errors import FileNotWritten
from ffnprobe.inputs import name_kind

TEMPORARY = ".ffnprobe."


def write_whole(path: Path, data: bytes) -> None:
    """Put the bytes at the path; if anything fails, an older file there stays as it was."""
    check_writable(path)
    target = _follow(path)
    temporary = target.parent / f"{TEMPORARY}{os.getpid()}.{secrets.token_hex(8)}"
    try:
        # A new file is for everybody the umask allows; an older one keeps its mode.
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(temporary, flags, 0o666 if mode is None else 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            os.chmod(temporary, mode)
        os.replace(temporary, target)
        sync_folder(target.parent)
    except OSError as error:
        raise FileNotWritten(f"{path} cannot be written: {error.strerror}.") from None
    finally:
        with suppress(OSError):
            os.unlink(temporary)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder last, where the system can."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def sweep(folder: Path) -> None:
    """Remove what killed processes had begun to write in a folder that nobody else writes to now."""
    for left in folder.glob(f"{TEMPORARY}*"):
        with suppress(OSError):
            left.unlink()


def check_writable(path: Path) -> None:
    """Say before the work begins if its result could not be written."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        pass  # said below
    except (OSError, ValueError) as error:  # a name that is too long, or that no file can have
        why = getattr(error, "strerror", None) or str(error)
        raise FileNotWritten(f"{path} cannot be written: {why}.", remedy="another name") from None
    if path.is_dir():
        raise FileNotWritten(f"{path} is a folder.", remedy="a file's name in it")
    target = _follow(path)
    if target.exists() and not target.is_file():
        raise FileNotWritten(
            f"{path} is not a regular file (it is {name_kind(target.stat().st_mode)}).",
            remedy="another name",
        )
    if not target.parent.is_dir():
        raise FileNotWritten(
            f"there is no folder {target.parent}.", remedy=f"mkdir -p {quote(target.parent)}"
        )
    if not os.access(target.parent, os.W_OK):
        raise FileNotWritten(f"the folder {target.parent} cannot be written to.")


def quote(path: str | os.PathLike[str]) -> str:
    """Write a path as a shell reads it."""
    return shlex.quote(os.fspath(path))


def _follow(path: Path) -> Path:
    """Return the file a link leads to, or the path itself."""
    if not path.is_symlink():
        return path
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        raise FileNotWritten(
            f"{path} is a link that leads back to itself.", remedy="another name"
        ) from None

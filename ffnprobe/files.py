"""Write files whole or not at all: under a temporary name first, then renamed over the old one."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from ffnprobe.errors import FileNotWritten


def write_whole(path: Path, data: bytes) -> None:
    """Put the bytes at the path; if anything fails, an older file there stays as it was."""
    check_writable(path)
    temporary = ""
    try:
        number, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(number, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp keeps the file to its owner; a result is for everybody the umask allows.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except OSError as error:
        raise FileNotWritten(f"{path} cannot be written: {error.strerror}.") from None
    finally:
        if temporary:
            with suppress(FileNotFoundError):
                os.unlink(temporary)


def check_writable(path: Path) -> None:
    """Say before the work begins if its result could not be written."""
    if path.is_dir():
        raise FileNotWritten(f"{path} is a folder.", remedy="a file's name in it")
    if not path.parent.is_dir():
        raise FileNotWritten(f"there is no folder {path.parent}.", remedy=f"mkdir -p {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise FileNotWritten(f"the folder {path.parent} cannot be written to.")

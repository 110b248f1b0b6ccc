"""One writer at a time in a folder: a lock file that names the process that holds it.

The system releases the lock when the process ends, however it ends: a lock file that a killed process
left behind stops nobody. The file is removed when the lock is released.
"""

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from ffnprobe.errors import FileNotWritten

LOCK = ".lock"


@contextmanager
def hold(folder: Path, *, remedy: str) -> Iterator[None]:
    """Hold a folder for this process, or refuse with the name of the process that holds it.

    Folders that had to be made for the lock are removed again if nothing else was put into them.
    """
    made = _make(folder)
    path = folder / LOCK
    lock = FileLock(path, timeout=0, is_singleton=False, thread_local=False)
    try:
        try:
            lock.acquire()
        except Timeout:
            raise FileNotWritten(
                f"another process is writing to {folder}{_name_holder(path)}.", remedy=remedy
            ) from None
        except OSError as error:
            raise FileNotWritten(f"{path} cannot be written: {error.strerror}.") from None
        try:
            with suppress(OSError):
                path.write_text(json.dumps(_describe_process()), encoding="utf-8")
            yield
        finally:
            # Removed while it is held: whoever opened the file meanwhile finds it gone and asks anew.
            with suppress(OSError):
                path.unlink()
            lock.release()
    finally:
        for each in made:
            with suppress(OSError):
                each.rmdir()


def _make(folder: Path) -> list[Path]:
    """Make a folder and those above it, and return what was made, the innermost first."""
    made = [each for each in (folder, *folder.absolute().parents) if not os.path.exists(each)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileNotWritten(f"{folder} cannot be made: {error.strerror}.") from None
    return made


def _describe_process() -> dict[str, object]:
    return {
        "process": os.getpid(),
        "machine": socket.gethostname(),
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
    }


def _name_holder(path: Path) -> str:
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        return f": process {known['process']} on {known['machine']}, since {known['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""

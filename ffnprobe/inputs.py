"""Read files that are handed in: regular ones only, and no larger than what is said.

A pipe or a device may never end, and a file of any size may be put where a small one was. Both
are refused before anything is read.
"""

import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

from ffnprobe.errors import DataRefused, FfnProbeError

MB = 1_000_000
# More than any published configuration, tokenizer or table of facts.
LARGEST = 1000 * MB
LARGEST_PROMPT = 16 * MB
Refusal = type[FfnProbeError]


def open_input(path: Path, *, refuse: Refusal = DataRefused) -> BinaryIO:
    """Open a regular file to read its bytes; FileNotFoundError if there is none."""
    try:
        # Without waiting: opening a pipe would wait for somebody who writes to it.
        number = os.open(
            path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        )
    except FileNotFoundError:
        raise
    except OSError as error:
        raise refuse(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError as error:  # a name no file can have
        raise refuse(f"{str(path)!r} cannot be read: {error}.") from None
    mode = os.fstat(number).st_mode
    if not stat.S_ISREG(mode):
        os.close(number)
        raise _not_regular(path, mode, refuse)
    return os.fdopen(number, "rb")


def check_regular(path: Path, *, refuse: Refusal = DataRefused) -> None:
    """Refuse a path that leads to something a library would read without end, or cannot read."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return  # there is none, which is said elsewhere
    except ValueError as error:  # a name that no file can have
        raise refuse(f"{str(path)!a} cannot be read: {error}.", remedy="another name") from None
    if not stat.S_ISREG(mode):
        raise _not_regular(path, mode, refuse)


def check_utf8(path: str | os.PathLike[str], *, refuse: Refusal = DataRefused) -> None:
    """Refuse a name that is not UTF-8 (libraries of Rust code write such files and cannot open them) or no name."""
    if "\0" in os.fspath(path):
        raise refuse(f"{os.fspath(path)!a} is a name that no file can have.", remedy="another name")
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        try:
            shown = os.fsencode(path).decode("utf-8", "backslashreplace")
        except UnicodeEncodeError:  # not even bytes that are not UTF-8
            shown = ascii(os.fspath(path))
        raise refuse(
            f"the name {shown} is not UTF-8, and the libraries that read its files need that.",
            remedy="another name",
        ) from None


def _not_regular(path: Path, mode: int, refuse: Refusal) -> FfnProbeError:
    return refuse(
        f"{path} is {name_kind(mode)}; ffnprobe reads regular files.",
        remedy="copy what it holds to a file",
    )


def read_input(path: Path, *, most: int = LARGEST, refuse: Refusal = DataRefused) -> bytes:
    """Read a regular file whole; FileNotFoundError if there is none."""
    with open_input(path, refuse=refuse) as file:
        data = file.read(min(most, os.fstat(file.fileno()).st_size) + 1)
    if len(data) > most:
        raise refuse(
            f"{path} is larger than {most // MB:,} MB, the most ffnprobe reads of such a file.",
            remedy="divide it" if refuse is DataRefused else None,
        )
    return data


def read_json(path: Path, *, refuse: Refusal = DataRefused) -> Any:
    """Read a regular file of JSON; FileNotFoundError if there is none."""
    return parse_json(read_input(path, refuse=refuse), where=str(path), refuse=refuse)


def parse_json(data: bytes | str, *, where: str, refuse: Refusal = DataRefused) -> Any:
    """Parse JSON, or say why not: not UTF-8, not JSON, nested too deeply, a number too long."""
    try:
        text = data if isinstance(data, str) else data.decode("utf-8-sig")
        return json.loads(text)
    except UnicodeDecodeError as error:
        raise refuse(f"{where} is not UTF-8: byte {error.start}.") from None
    except RecursionError:
        raise refuse(f"{where} is nested too deeply to be read.") from None
    except ValueError as error:
        why = "a number in it has thousands of digits" if "digits" in str(error) else str(error)
        raise refuse(f"{where} is not JSON: {why}.") from None


def name_kind(mode: int) -> str:
    """Name what a path leads to if it is not a regular file."""
    named = {
        stat.S_ISDIR: "a folder", stat.S_ISFIFO: "a pipe", stat.S_ISCHR: "a device",
        stat.S_ISBLK: "a device",
    }  # fmt: skip
    return next((name for check, name in named.items() if check(mode)), "a socket")

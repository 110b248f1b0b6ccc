"""How files are read and written safely: regular ones of a bounded size, whole or not at all, with a checksum.

A pipe or a device may never end, and a file of any size may be put where a small one was: both are refused
before anything is read. What is written has a temporary name first (`.ffnprobe.4711.9f2c…`, with the
process's number) and then replaces the old file; it keeps the mode that had, a link is followed, and the
folder is synced too, so that a finished write survives a power cut.

A checksum stands inside its file: `xxh3:` and 32 hexadecimal digits, over every byte. Whoever writes a file
puts `BLANK` there, in whatever format, and `seal` fills it in. What is `bound` (the store a part is of, its
name) enters the checksum and not the file: a file put in the place of another is noticed, as is a changed
byte.

>>> data = seal(b'{"rank": 1, "checksum": "' + BLANK + b'"}')
>>> is_sealed(data), is_sealed(data.replace(b"1", b"2")), is_sealed(b"{}")
(True, False, None)
"""

import json
import os
import re
import secrets
import shlex
import stat
from contextlib import suppress
from mmap import mmap
from pathlib import Path
from typing import Any, BinaryIO

from ffnprobe.errors import DataRefused, FfnProbeError, FileNotWritten

MB = 1_000_000
# More than any published configuration, tokenizer or table of facts.
LARGEST = 1000 * MB
LARGEST_PROMPT = 16 * MB
# Begins the names of files that are being written.
TEMPORARY = ".ffnprobe."
BLANK = b"xxh3:" + b"0" * 32
_SEAL = re.compile(rb"xxh3:[0-9a-f]{32}")
Refusal = type[FfnProbeError]


def open_input(path: Path, *, refuse: Refusal = DataRefused) -> BinaryIO:
    """Open a regular file to read its bytes; FileNotFoundError if there is none."""
    try:
        # Without waiting: opening a pipe would wait for somebody who writes to it.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        number = os.open(path, flags)
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
    remedy = "copy what it holds to a file"
    return refuse(f"{path} is {name_kind(mode)}; ffnprobe reads regular files.", remedy=remedy)


def safe_read(path: Path, *, most: int = LARGEST, refuse: Refusal = DataRefused) -> bytes:
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
    return parse_json(safe_read(path, refuse=refuse), where=str(path), refuse=refuse)


def parse_json(data: bytes | str, *, where: str, refuse: Refusal = DataRefused) -> Any:
    """Parse JSON, or say why not: not UTF-8, not JSON, nested too deeply, a number too long."""
    try:
        return json.loads(data if isinstance(data, str) else data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise refuse(f"{where} is not UTF-8: byte {error.start}.") from None
    except RecursionError:
        raise refuse(f"{where} is nested too deeply to be read.") from None
    except ValueError as error:
        why = "a number in it has thousands of digits" if "digits" in str(error) else str(error)
        raise refuse(f"{where} is not JSON: {why}.") from None


def name_kind(mode: int) -> str:
    """Name what a path leads to if it is not a regular file."""
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe"}
    kinds |= dict.fromkeys((stat.S_IFCHR, stat.S_IFBLK), "a device")
    return kinds.get(stat.S_IFMT(mode), "a socket")


def atomic_write(path: Path, data: bytes) -> None:
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


def remove_leftovers(folder: Path) -> None:
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
        remedy = f"mkdir -p {quote(target.parent)}"
        raise FileNotWritten(f"there is no folder {target.parent}.", remedy=remedy)
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


def seal(data: bytes, *, bound: str = "") -> bytes:
    """Fill in the checksum of data that holds one blank."""
    if data.count(BLANK) != 1:
        raise FileNotWritten(f"a text in it reads {BLANK.decode()}, as an empty checksum does.")
    return data.replace(BLANK, _measure(data, bound))


def is_sealed(data: bytes | mmap, *, bound: str = "") -> bool | None:
    """Say whether these are the bytes that were sealed; None if there is no checksum in them."""
    sums = _SEAL.findall(data)
    return _measure(data, bound) in sums if sums else None


def _measure(data: bytes | mmap, bound: str) -> bytes:
    """Hash the bytes, what looks like a checksum as if it were blank."""
    import xxhash  # not by the commands' help

    digest, start = xxhash.xxh3_128(f"{bound}\n".encode(errors="surrogatepass")), 0
    with memoryview(data) as view:
        for match in _SEAL.finditer(data):
            digest.update(view[start : match.start()])
            digest.update(BLANK)
            start = match.end()
        digest.update(view[start:])
    return b"xxh3:" + digest.hexdigest().encode()

"""Where texts come from: files, folders, globs, standard input, datasets of the hub, or a mapping.

    speeches/1789.txt      any file that is not .jsonl or .parquet: one text
    posts.jsonl            one text a line: an object with the column, or a string
    rows.parquet           one text a row, in the column
    speeches/              every .txt, .jsonl and .parquet file below the folder
    speeches/*.txt         a glob
    hub:NAME[:CONFIG[:SPLIT]]   a dataset through `datasets`, streamed; the split is train if not said
    -                      standard input: one text

Files are taken in the order of their names, each once, however they were listed: the order they are
given in does not move a number. A mapping of names to texts is a corpus in memory.

>>> [(source.name, source.size) for source in find_texts({"b": "two words", "a": "one"})]
[('a', 3), ('b', 9)]
"""

import glob
import os
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

import xxhash

from ffnprobe.errors import DataRefused
from ffnprobe.files import open_input

Texts = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Mapping[str, str]
KINDS = {".txt": "text", ".jsonl": "jsonl", ".parquet": "parquet"}
HUB = "hub:"
BYTES_AT_ONCE = 2**20


@dataclass(frozen=True)
class TextSource:
    """One file, stream or text: what it is called, how it is read, and its bytes' hash if known."""

    name: str
    kind: str
    where: str
    size: int | None = None
    hash: str | None = None

    def describe(self) -> dict[str, object]:
        """Describe the source for a store: by content, not by where it lies today."""
        return {"name": self.name, "kind": self.kind, "bytes": self.size, "hash": self.hash}


def find_texts(texts: Texts) -> list[TextSource]:
    """List the sources that paths, globs, names or a mapping stand for, hashed and in order."""
    if isinstance(texts, Mapping):
        return [_given(name, texts[name]) for name in sorted(texts)]
    words = _words(texts)
    streams = [_stream(word) for word in dict.fromkeys(words) if _is_stream(word)]
    paths = (path for word in words if not _is_stream(word) for path in _find(word))
    files = list(dict.fromkeys(path.resolve() for path in paths))
    if not files and not streams:
        raise DataRefused("no text is named.", remedy="a file, a folder, a glob, or -")
    return [*_name_files(files), *streams]


@dataclass(frozen=True)
class TextSize:
    """How many files words stand for, and their bytes; at least so many if the walk was ended early."""

    files: int = 0
    size: int = 0
    is_all: bool = True


def measure_texts(
    texts: Texts, *, files: float = inf, size: float = inf, names: float = inf
) -> TextSize:
    """Count the files that words stand for and their bytes, before any is read.

    The walk ends where there are more files, bytes, or names in folders to look at than these.
    """
    counted: set[Path] = set()
    total = looked_at = 0
    for word in [] if isinstance(texts, Mapping) else _words(texts):
        if _is_stream(word):
            continue
        before = len(counted)
        for path in _walk(word):
            looked_at += 1
            if path is not None and (real := path.resolve()) not in counted:
                counted.add(real)
                total += real.stat().st_size
            if len(counted) > files or total > size or looked_at > names:
                return TextSize(len(counted), total, is_all=False)
        if len(counted) == before:
            _find(word)  # says so if there is nothing
    return TextSize(len(counted), total)


def hash_bytes(chunks: Iterable[bytes]) -> str:
    """Hash bytes, in pieces as they come."""
    digest = xxhash.xxh3_128()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def read_chunks(path: Path) -> Generator[bytes, None, None]:
    """Read a file a piece at a time, or say why it cannot be read; closing it closes the file."""
    try:
        with open_input(path) as file:
            while chunk := file.read(BYTES_AT_ONCE):
                yield chunk
    except OSError as error:
        raise DataRefused(f"{path} cannot be read: {error.strerror}.") from None


def _words(texts: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    several = [texts] if isinstance(texts, (str, os.PathLike)) else list(texts)
    return [os.fspath(word) for word in several]


def _is_stream(word: str) -> bool:
    return word == "-" or word.startswith(HUB)


def _stream(word: str) -> TextSource:
    if word == "-":
        return TextSource("standard input", "stdin", "-")
    where = word.removeprefix(HUB)
    if not where:
        raise DataRefused("hub: names no dataset.", remedy="hub:NAME, hub:NAME:CONFIG:SPLIT")
    return TextSource(where, "hub", where)


def _given(name: str, text: str) -> TextSource:
    data = text.encode("utf-8", errors="surrogateescape")
    return TextSource(_written(str(name)), "given", text, len(data), hash_bytes([data]))


def _written(name: str) -> str:
    """Write a name that is not UTF-8 with its bytes spelled out: `caf\\xe9.txt`."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _find(word: str) -> list[Path]:
    """Find the files a path, a folder or a glob stands for."""
    if paths := [path for path in _walk(word) if path is not None]:
        return paths
    if os.path.isdir(Path(word).expanduser()):
        raise DataRefused(f"the folder {word} holds no {', '.join(KINDS)} file.")
    raise DataRefused(f"no file matches {word}.", remedy='"folder/**/*.txt", in quotes')


def _walk(word: str) -> Iterator[Path | None]:
    """Look at what a path, a folder or a glob stands for, one name after the other; None: no text."""
    path = Path(word).expanduser()
    if os.path.isdir(path):
        for each in path.rglob("*"):
            yield each if each.suffix.lower() in KINDS and each.is_file() else None
    elif os.path.exists(path):
        yield path
    elif glob.has_magic(word):
        for name in glob.iglob(str(path), recursive=True):
            yield Path(name) if os.path.isfile(name) else None
    else:
        raise DataRefused(f"there is no file {word}.", remedy="a file, a folder, a glob, or -")


def _name_files(files: Sequence[Path]) -> list[TextSource]:
    """Name files from the folder they have in common, so that a store can move with its texts."""
    if not files:
        return []
    top = os.path.commonpath([path.parent for path in files])
    named = sorted((_written(path.relative_to(top).as_posix()), path) for path in files)
    return [
        TextSource(
            name=name,
            kind=KINDS.get(path.suffix.lower(), "text"),
            where=str(path),
            size=path.stat().st_size,
            hash=hash_bytes(read_chunks(path)),
        )
        for name, path in named
    ]

"""The head of a GGUF file: what it says about the model, and where each tensor lies.

    "GGUF" version counts | metadata: name type value … | tensors: name shape kind offset … | data

The gguf package's own reader takes ten seconds over the strings of one vocabulary, so the head is
read here; nothing of the data is touched, and a file that ends too early is told before any work.
"""

import mmap
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from ffnprobe.errors import ModelNotLoaded

MAGIC = b"GGUF"
VERSIONS = (2, 3)
_NUMBERS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
_STRING, _ARRAY = 8, 9
_ALIGNMENT = 32
# Ten times what the largest published models have.
_MOST_TENSORS, _MOST_FIELDS, _MOST_TEXTS = 100_000, 10_000, 2**23


@dataclass(frozen=True)
class TensorEntry:
    """Where one tensor lies in the file; its shape is in torch's order, its kind ggml's number."""

    name: str
    shape: tuple[int, ...]
    kind: int
    start: int

    @property
    def size(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class Header:
    """A file's metadata (a list of strings is only counted) and its tensors."""

    path: Path
    metadata: dict[str, Any]
    tensors: tuple[TensorEntry, ...]

    @property
    def architecture(self) -> str:
        return str(self.metadata["general.architecture"])


def read_header(path: Path) -> Header:
    """Read a file's head, or say why it is none."""
    with path.open("rb") as file:
        opening = file.read(8)
        if opening[:4] != MAGIC:
            raise ModelNotLoaded(f"{path} is not a GGUF file: it begins with {opening[:4]!r}.")
        version = int.from_bytes(opening[4:], "little")
        if version not in VERSIONS:
            raise ModelNotLoaded(f"{path} is GGUF version {version}; ffnprobe reads 2 and 3.")
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                header = _Cursor(data).read(path)
        except (struct.error, ValueError, KeyError, OverflowError, MemoryError) as error:
            raise truncated(path, str(error)) from None
    if "general.architecture" not in header.metadata:
        raise ModelNotLoaded(f"{path} does not say its architecture.")
    return header


def truncated(path: Path, cause: str) -> ModelNotLoaded:
    """Say that a file does not hold what its head promises."""
    return ModelNotLoaded(
        f"{path} is truncated or corrupt ({cause}).", remedy="download or copy it again"
    )


class _Cursor:
    """Reads one value after the other."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 8

    def read(self, path: Path) -> Header:
        tensors, fields = self.number("Q"), self.number("Q")
        for count, most, what in (
            (tensors, _MOST_TENSORS, "tensors"), (fields, _MOST_FIELDS, "fields"),
        ):  # fmt: skip
            if count > most:
                raise ModelNotLoaded(
                    f"{path} says it holds {count:,} {what}; ffnprobe reads at most {most:,}."
                )
        metadata = {}
        for _ in range(fields):
            name = self.text()
            metadata[name] = self.value(self.number("I"))
        found = [self.tensor() for _ in range(tensors)]
        alignment = metadata.get("general.alignment", _ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise ModelNotLoaded(f"{path}: general.alignment is {alignment!r}, not a power of two.")
        _check_tensors(path, found, alignment)
        data_start = -(-self.at // alignment) * alignment
        tensors = (
            TensorEntry(n, shape, kind, data_start + start) for n, shape, kind, start in found
        )
        return Header(path, metadata, tuple(tensors))

    def number(self, code: str) -> Any:
        (value,) = struct.unpack_from(f"<{code}", self.data, self.at)
        self.at += struct.calcsize(f"<{code}")
        return value

    def text(self) -> str:
        start, end = self.skip_text()
        return self.data[start:end].decode("utf-8")

    def skip_text(self) -> tuple[int, int]:
        length = self.number("Q")
        start, end = self.at, self.at + length
        if end > len(self.data):
            raise ValueError(f"a text ends at byte {end:,} of {len(self.data):,}")
        self.at = end
        return start, end

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            return self.number(_NUMBERS[kind])
        inner, count = self.number("I"), self.number("Q")
        if inner == _STRING:
            if count > _MOST_TEXTS:
                raise ValueError(f"a list of {count:,} texts; at most {_MOST_TEXTS:,} are read")
            for _ in range(count):
                self.skip_text()
            return count
        if count * struct.calcsize(f"<{_NUMBERS[inner]}") > len(self.data) - self.at:
            raise ValueError(f"a list of {count:,} numbers is longer than the file")
        # All at once: one by one takes half a second a megabyte.
        numbers = list(struct.unpack_from(f"<{count}{_NUMBERS[inner]}", self.data, self.at))
        self.at += struct.calcsize(f"<{count}{_NUMBERS[inner]}")
        return numbers

    def tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name, axes = self.text(), self.number("I")
        if axes > 4:
            raise ValueError(f"{name} has {axes} axes")
        # ggml names the fastest axis first.
        shape = tuple(reversed([self.number("Q") for _ in range(axes)]))
        return name, shape, self.number("I"), self.number("Q")


def _check_tensors(
    path: Path, found: Sequence[tuple[str, tuple[int, ...], int, int]], alignment: int
) -> None:
    """Refuse tensors that are empty, stand twice, or do not begin where tensors may."""
    seen: set[str] = set()
    for name, shape, _, start in found:
        if not shape or 0 in shape:
            raise ModelNotLoaded(f"{path}: {name} is {list(shape)}, which holds no number.")
        if name in seen:
            raise ModelNotLoaded(f"{path} holds {name} twice.")
        if start % alignment:
            raise ModelNotLoaded(
                f"{path}: {name} begins at byte {start:,} of the data, not at a multiple of {alignment}."
            )
        seen.add(name)

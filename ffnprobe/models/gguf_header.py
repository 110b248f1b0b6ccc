"""The head of a GGUF file: what it says about the model, and where each tensor lies.

    "GGUF" version counts | metadata: name type value … | tensors: name shape kind offset … | data

The gguf package's own reader takes ten seconds over the strings of one vocabulary, so the head is
read here; nothing of the data is touched, and a file that ends too early is told before any work.
"""

import mmap
import struct
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from ffnprobe.errors import ModelNotLoaded
from ffnprobe.models.hub import truncated

MAGIC = b"GGUF"
VERSIONS = (2, 3)
_NUMBERS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
_STRING, _ARRAY = 8, 9
_ALIGNMENT = 32
# Ten times what the largest published models have.
_MOST_TENSORS, _MOST_FIELDS, _MOST_TEXTS = 100_000, 10_000, 2**23


class TensorEntry(NamedTuple):
    """Where one tensor lies in the file."""

    name: str
    shape: tuple[int, ...]  # in torch's order
    kind: int  # ggml's number
    start: int

    @property
    def size(self) -> int:
        return prod(self.shape)


# A file's metadata, in which a list of strings is only counted, and its tensors.
Header = tuple[dict[str, Any], tuple[TensorEntry, ...]]


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
                metadata, tensors = _Cursor(data).read(path)
        except (struct.error, ValueError, KeyError, OverflowError, MemoryError) as error:
            raise truncated(path, str(error)) from None
    if "general.architecture" not in metadata:
        raise ModelNotLoaded(f"{path} does not say its architecture.")
    return metadata, tensors


class _Cursor:
    """Reads one value after the other."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 8

    def read(self, path: Path) -> Header:
        tensors, fields = self.number("Q"), self.number("Q")
        counted = (tensors, _MOST_TENSORS, "tensors"), (fields, _MOST_FIELDS, "fields")
        for count, most, what in counted:
            if count > most:
                raise ModelNotLoaded(
                    f"{path} says it holds {count:,} {what}; ffnprobe reads at most {most:,}."
                )
        metadata = {self.text(): self.value(self.number("I")) for _ in range(fields)}
        found = [self.tensor() for _ in range(tensors)]
        alignment = metadata.get("general.alignment", _ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise ModelNotLoaded(f"{path}: general.alignment is {alignment!r}, not a power of two.")
        _check_tensors(path, found, alignment)
        data_start = -(-self.at // alignment) * alignment
        return metadata, tuple(each._replace(start=data_start + each.start) for each in found)

    def number(self, code: str) -> Any:
        (value,) = struct.unpack_from(f"<{code}", self.data, self.at)
        self.at += struct.calcsize(f"<{code}")
        return value

    def text(self) -> str:
        start = self.at + 8
        self.skip_text()
        return self.data[start : self.at].decode("utf-8")

    def skip_text(self) -> None:
        end = self.number("Q") + self.at
        if end > len(self.data):
            raise ValueError(f"a text ends at byte {end:,} of {len(self.data):,}")
        self.at = end

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
        length = count * struct.calcsize(f"<{_NUMBERS[inner]}")
        if length > len(self.data) - self.at:
            raise ValueError(f"a list of {count:,} numbers is longer than the file")
        self.at += length
        # All at once: one by one takes half a second a megabyte.
        return list(struct.unpack_from(f"<{count}{_NUMBERS[inner]}", self.data, self.at - length))

    def tensor(self) -> TensorEntry:
        name, axes = self.text(), self.number("I")
        if axes > 4:
            raise ValueError(f"{name} has {axes} axes")
        # ggml names the fastest axis first.
        shape = tuple(reversed([self.number("Q") for _ in range(axes)]))
        return TensorEntry(name, shape, self.number("I"), self.number("Q"))


def _check_tensors(path: Path, found: list[TensorEntry], alignment: int) -> None:
    """Refuse tensors that are empty, stand twice, or do not begin where tensors may."""
    seen: set[str] = set()
    for entry in found:
        if not entry.shape or not entry.size:
            raise ModelNotLoaded(
                f"{path}: {entry.name} is {list(entry.shape)}, which holds no number."
            )
        if entry.name in seen:
            raise ModelNotLoaded(f"{path} holds {entry.name} twice.")
        if entry.start % alignment:
            raise ModelNotLoaded(
                f"{path}: {entry.name} begins at byte {entry.start:,} of the data, not at a multiple "
                f"of {alignment}."
            )
        seen.add(entry.name)

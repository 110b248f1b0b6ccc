"""Labels on disk, beside the scan they are of: one file, whole at every moment.

    labels.safetensors           the columns of the table; texts of a column in one tensor of bytes
    labels.partial.safetensors   how far labelling is, while it is not finished; removed at the end

Both say which scan and which settings they are of, and carry a checksum of everything they say.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ffnprobe.corpora.sources import hash_bytes
from ffnprobe.errors import DataRefused
from ffnprobe.files import quote, write_whole
from ffnprobe.models.checkpoint import fingerprint

LABELS, PARTIAL = "labels.safetensors", "labels.partial.safetensors"
FORMAT = 1
# What is measured between two writes may be lost; a write takes seconds where there are many neurons.
SECONDS = 30.0
Columns = Mapping[str, np.ndarray | list[str]]


class Partial:
    """How far labelling is, in a store or nowhere."""

    def __init__(self, folder: Path | None, known: Mapping[str, Any]) -> None:
        self.path = None if folder is None else folder / PARTIAL
        self.known = dict(known)
        self._written = time.monotonic()

    def resume(self) -> tuple[str, int, dict[str, Tensor]]:
        """Return the stage, how much of it is done, and what is known; a beginning where nothing is."""
        if self.path is not None and self.path.is_file():
            known, tensors = read_tensors(self.path)
            stage, done = known.pop("stage"), known.pop("done")
            if known == self.known:
                return stage, done, tensors
        return "first", 0, {}

    def save(self, stage: str, done: int, tensors: Mapping[str, Tensor]) -> None:
        """Write how far it is, unless that was done a moment ago."""
        if self.path is None or time.monotonic() - self._written < SECONDS:
            return
        write_tensors(self.path, tensors, self.known | {"stage": stage, "done": done})
        self._written = time.monotonic()

    def remove(self) -> None:
        """Remove what is not needed any more."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


@dataclass(frozen=True, eq=False)
class StoredLabels:
    """Labels as they were read: what they are of, and their columns."""

    known: dict[str, Any]
    columns: dict[str, np.ndarray | list[str]]


def pack_labels(columns: Columns, known: Mapping[str, Any]) -> bytes:
    """Write labels as the bytes of a file."""
    tensors = {
        name: torch.from_numpy(_as_bytes(column)) if isinstance(column, list) else torch.from_numpy(column)
        for name, column in columns.items()
    }  # fmt: skip
    texts = [name for name, column in columns.items() if isinstance(column, list)]
    return _pack(tensors, {**known, "order": list(columns), "texts": texts})


def read_labels(path: Path) -> StoredLabels:
    """Read labels, checked against their checksum."""
    known, tensors = read_tensors(path)
    texts = set(known.pop("texts"))
    columns: dict[str, np.ndarray | list[str]] = {}
    for name in known.pop("order"):
        values = tensors[name].numpy()
        columns[name] = values.tobytes().decode().split("\n") if name in texts else values
    return StoredLabels(known, columns)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], known: Mapping[str, Any]) -> None:
    """Write tensors and what they are of, whole."""
    write_whole(path, _pack(tensors, known))


def read_tensors(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read tensors and what they are of, or say that the file is damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            known = json.loads(file.metadata()["labels"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if known.pop("checksum") != _checksum(known, tensors):
            raise ValueError("its checksum is another")
        if known["format"] != FORMAT:
            raise ValueError(f"it has format {known['format']}; this version reads {FORMAT}")
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataRefused(
            f"{path} is damaged: {str(error).rstrip('.')}.",
            remedy=f"remove it, then ffnprobe label --store {quote(path.parent)}",
        ) from None
    return known, tensors


def _pack(tensors: Mapping[str, Tensor], known: Mapping[str, Any]) -> bytes:
    held = {name: each.contiguous() for name, each in tensors.items()}
    said = {**known, "format": FORMAT}
    said["checksum"] = _checksum(said, held)
    return bytes(save(held, metadata={"labels": json.dumps(said)}))


def _checksum(known: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    return hash_bytes([json.dumps(known, sort_keys=True).encode(), fingerprint(tensors).encode()])


def _as_bytes(texts: list[str]) -> np.ndarray:
    return np.frombuffer("\n".join(texts).encode(), dtype=np.uint8).copy()

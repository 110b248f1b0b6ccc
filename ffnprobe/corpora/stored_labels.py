"""Labels that lie with a scan: as a part of its store, or in the package with the embedded model.

They say which scan and which settings they are of. While labelling is not finished, another part says how
far it is; it is removed at the end. Texts of a column lie in one tensor of bytes.
"""

import lzma
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ffnprobe.corpora.labels import Labels
from ffnprobe.corpora.scans import Scan
from ffnprobe.errors import DataRefused
from ffnprobe.models import pocket
from ffnprobe.models.model import Model
from ffnprobe.provenance import Provenance
from ffnprobe.store import Part, Store, encode_part, read_part

LABELS, PARTIAL = "labels", "labels-partial"
PACKED = pocket.FOLDER / "labels.safetensors.xz"
# What is measured between two writes may be lost; a write takes seconds where there are many neurons.
SECONDS = 30.0


class Partial:
    """How far labelling is, in a store or nowhere."""

    def __init__(self, store: Store | None, known: Mapping[str, Any]) -> None:
        self.store, self.known = store, dict(known)
        self._written = time.monotonic()

    def resume(self) -> tuple[str, int, dict[str, Tensor]]:
        """Return the stage, how much of it is done, and what is known; a beginning where nothing is."""
        part = None if self.store is None else self.store.read(PARTIAL)
        if part is not None:
            stage, done = part.said.pop("stage"), part.said.pop("done")
            if part.said == self.known:
                return stage, done, part.tensors
        return "first", 0, {}

    def save(self, stage: str, done: int, tensors: Mapping[str, Tensor]) -> None:
        """Write how far it is, unless that was done a moment ago."""
        if self.store is None or time.monotonic() - self._written < SECONDS:
            return
        self.store.write(PARTIAL, self.known | {"stage": stage, "done": done}, tensors)
        self._written = time.monotonic()


def write_labels(store: Store, labels: Labels, scan: Scan) -> None:
    """Keep the labels of a scan in its store, and forget how far labelling was."""
    store.write(LABELS, *_describe(labels, scan.done.digest))
    store.remove(PARTIAL)


def open_labels(scan: Scan) -> Labels | None:
    """Open the labels in the store of a scan, None if there are none or they are of another scan."""
    part = None if scan.folder is None else Store(scan.folder, scan.manifest).read(LABELS)
    if part is None or part.said["digest"] != scan.done.digest:
        return None
    return replace(_read_labels(part), scan=scan)


def find_labels(model: Model, scan: Scan | None) -> Labels | None:
    """Find the labels that go with a scan, or without one those in the package."""
    return embedded_labels(model) if scan is None else open_labels(scan)


def embedded_labels(model: Model) -> Labels | None:
    """Return the labels in the package if they are of this very model."""
    if model.source.kind != "embedded" or not PACKED.is_file():
        return None
    try:
        labels = _unpack(PACKED)
    except DataRefused:
        return None
    return labels if labels.provenance.identity == model.identity else None


def pack(labels: Labels, target: Path) -> None:
    """Compress labels into a file; the same labels give the same bytes."""
    data = encode_part(*_describe(labels, digest=""))
    target.write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))


@cache
def _unpack(packed: Path) -> Labels:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = Path(folder) / LABELS
        path.write_bytes(lzma.decompress(packed.read_bytes()))
        return _read_labels(read_part(path))


def _describe(labels: Labels, digest: str) -> Part:
    """Write labels as a part: the scan's digest, the provenance, and the columns."""
    texts = [name for name, column in labels.columns.items() if isinstance(column, list)]
    said = {
        "digest": digest, "provenance": labels.provenance.as_dict(),
        "order": list(labels.columns), "texts": texts,
    }  # fmt: skip
    return Part(said, {name: _as_tensor(column) for name, column in labels.columns.items()})


def _read_labels(part: Part) -> Labels:
    columns: dict[str, np.ndarray | list[str]] = {}
    for name in part.said["order"]:
        values = part.tensors[name].numpy()
        is_text = name in part.said["texts"]
        columns[name] = values.tobytes().decode().split("\n") if is_text else values
    return Labels(columns, Provenance.from_dict(part.said["provenance"]))


def _as_tensor(column: np.ndarray | list[str]) -> Tensor:
    if isinstance(column, list):
        column = np.frombuffer("\n".join(column).encode(), dtype=np.uint8).copy()
    return torch.from_numpy(column)

"""Labels that lie with a scan: in its store, or in the package with the embedded model."""

import lzma
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

from ffnprobe.corpora.label_files import LABELS, StoredLabels, read_labels
from ffnprobe.corpora.labels import Labels
from ffnprobe.corpora.scans import Scan
from ffnprobe.errors import DataRefused
from ffnprobe.models import pocket
from ffnprobe.models.model import Model
from ffnprobe.models.provenance import Provenance

PACKED = pocket.FOLDER / "labels.safetensors.xz"


def open_labels(folder: Path, scan: Scan) -> Labels | None:
    """Open the labels in a store, None if there are none or they are of another scan."""
    path = folder / LABELS
    if not path.is_file():
        return None
    stored = read_labels(path)
    if stored.known["digest"] != scan.done.digest:
        return None
    return replace(_as_labels(stored), scan=scan)


def find_labels(model: Model, scan: Scan | None) -> Labels | None:
    """Find the labels that go with a scan, or without one those in the package."""
    if scan is None:
        return embedded_labels(model)
    return None if scan.folder is None else open_labels(scan.folder, scan)


def embedded_labels(model: Model) -> Labels | None:
    """Return the labels in the package if they are of this very model."""
    if model.source.kind != "embedded" or not PACKED.is_file():
        return None
    try:
        labels = _unpack(PACKED)
    except DataRefused:
        return None
    return labels if labels.provenance.identity == model.identity else None


def pack(labels: bytes, target: Path) -> None:
    """Compress a file of labels; the same labels give the same bytes."""
    target.write_bytes(lzma.compress(labels, preset=9 | lzma.PRESET_EXTREME))


@cache
def _unpack(packed: Path) -> Labels:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = Path(folder) / LABELS
        path.write_bytes(lzma.decompress(packed.read_bytes()))
        return _as_labels(read_labels(path))


def _as_labels(stored: StoredLabels) -> Labels:
    return Labels(stored.columns, Provenance.from_dict(stored.known["provenance"]))

"""The scan of its own texts that lies in the package with pocket, so that examples are there at once.

It is a store, packed into one file by `analyses/scan_pocket.py`. A scan of another pocket (weights,
configuration or vocabulary) is not used.
"""

import tarfile
import tempfile
from functools import cache
from pathlib import Path

from ffnprobe.corpora.scans import Scan
from ffnprobe.errors import DataRefused
from ffnprobe.models import pocket
from ffnprobe.models.model import Model

PACKED = pocket.FOLDER / "scan.tar.xz"


def pack_scan(store: Path, target: Path) -> None:
    """Pack a store into one file; the same store gives the same bytes."""
    with tarfile.open(target, "w:xz", preset=9) as packed:
        for path in sorted(store.iterdir()):
            if path.is_file() and not path.name.startswith("."):
                packed.add(path, path.name, filter=_forget)


def _forget(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out whose file it was, and when."""
    member.mtime, member.uid, member.gid, member.mode = 0, 0, 0, 0o644
    member.uname = member.gname = ""
    return member


def embedded_scan(model: Model) -> Scan | None:
    """Return the scan in the package if it is of this very model."""
    if model.source.kind != "embedded" or not PACKED.is_file():
        return None
    try:
        return _unpack(PACKED).check(model)
    except DataRefused:
        return None


@cache
def _unpack(packed: Path) -> Scan:
    # Its tensors are mapped from the file; where files in use cannot be removed, it stays.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        with tarfile.open(packed) as members:
            members.extractall(folder, filter="data")
        return Scan.open(folder)

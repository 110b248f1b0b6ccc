"""The second moments of pocket's keys that lie in the package, so that an edit starts at once.

`analyses/key_moments_pocket.py` makes the file. Moments of another pocket (weights, configuration or
vocabulary) are not used.
"""

from functools import cache
from pathlib import Path

from ffnprobe.editing.key_moments import KeyMoments
from ffnprobe.editing.key_stores import FILE, read_file
from ffnprobe.errors import DataRefused
from ffnprobe.models import pocket
from ffnprobe.models.model import Model

PACKED = pocket.FOLDER / FILE


def embedded_keys(model: Model) -> KeyMoments | None:
    """Return the second moments in the package if they are of this very model."""
    if model.source.kind != "embedded" or not PACKED.is_file():
        return None
    try:
        return _read(PACKED).check(model)
    except DataRefused:
        return None


@cache
def _read(path: Path) -> KeyMoments:
    return read_file(path)

"""Which models our own forward pass may run: those it was seen to run as Hugging Face and TransformerLens do.

Pocket is checked by the tests. Any other model is checked when it is first run (see
`ffnprobe.models.agreement`), and that is recorded in the user's cache folder:

    made_for   the identity of the model, a hash of all its options, the versions of the libraries
    rotary     each layer's frequencies, as Hugging Face computed them; none where positions are embedded
    checksum   over both

A record that is damaged, or made for anything else, is ignored and the model is checked again. So it
is, each time, where the cache cannot be written or where logits overflow and cannot be compared.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import xxhash

from ffnprobe.errors import FileNotWritten
from ffnprobe.files import write_whole
from ffnprobe.models import bridge
from ffnprobe.models.caches import cache_folder
from ffnprobe.models.config import Config
from ffnprobe.models.model import Model
from ffnprobe.models.own_pass import Rotary
from ffnprobe.version import VERSION

LIBRARIES = ("torch", "transformers", "transformer-lens")
# Kinds of rotary embeddings whose frequencies do not depend on the length of the prompt.
FIXED = ("default", "linear", "llama3", "yarn")

_known: "WeakKeyDictionary[Model, tuple[Rotary, ...]]" = WeakKeyDictionary()


def has_own_pass(config: Config) -> bool:
    """Say whether our own pass can run a model: its rotary frequencies, if it has any, are fixed."""
    for name in ("rope_parameters", "rope_scaling"):
        said = config.native.get(name) or {}
        if not isinstance(said, Mapping):
            return False
        # Gemma 3 says it for each kind of layer.
        for part in (said, *(value for value in said.values() if isinstance(value, Mapping))):
            if part.get("rope_type", part.get("type", "default")) not in FIXED:
                return False
    return True


def verified_rotary(model: Model) -> tuple[Rotary, ...]:
    """Return what a model's positions are turned by, layer by layer, once its own pass is verified."""
    if model not in _known:
        _known[model] = () if model.source.kind == "embedded" else _look_up(model)
    return _known[model]


def run_alike(changed: Model, original: Model) -> None:
    """Run a model that differs from a verified one in the numbers of its weights alone as that is run."""
    if original in _known:
        _known[changed] = _known[original]


def _look_up(model: Model) -> tuple[Rotary, ...]:
    path = cache_folder() / "verified" / f"{model.identity}.json"
    made_for = _describe(model)
    if (known := _read(path, made_for)) is not None:
        return known
    rotary = bridge.rotary_of(model)
    bridge.forget_bridge(model)
    if not bridge.was_compared(model):
        return rotary
    record = {"made_for": made_for, "rotary": rotary, "checksum": _hash([made_for, rotary])}
    with suppress(OSError, FileNotWritten):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(record).encode())
    return rotary


def _describe(model: Model) -> dict[str, Any]:
    versions = {"ffnprobe": VERSION, **{name: version(name) for name in LIBRARIES}}
    return {
        "identity": model.identity,
        "options": _hash(dict(model.config.native)),
        "versions": versions,
    }


def _read(path: Path, made_for: dict[str, Any]) -> tuple[Rotary, ...] | None:
    """Read a record, if it is whole and made for this."""
    with suppress(OSError, ValueError, RecursionError, KeyError, TypeError):
        known = json.loads(path.read_bytes())
        rotary = known["rotary"]
        if known["made_for"] == made_for and known["checksum"] == _hash([made_for, rotary]):
            return tuple((tuple(frequencies), scaling) for frequencies, scaling in rotary)
    return None


def _hash(value: object) -> str:
    return xxhash.xxh3_128_hexdigest(json.dumps(value, sort_keys=True, default=str).encode())

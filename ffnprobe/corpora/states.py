"""How far a scan is and what it knows so far, as one file with a checksum of all it says.

The checksum is of the names, types, shapes and bytes of the tensors, of the counts beside them, and of
the hashes of the store's other files. It is computed from what was read, so that a file replaced
meanwhile by a running scan does no harm.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ffnprobe.corpora.kept import Kept, read_kept
from ffnprobe.corpora.manifests import other_store
from ffnprobe.corpora.passages import SOURCE_BITS, Done
from ffnprobe.corpora.sources import hash_bytes
from ffnprobe.corpora.statistics import Statistics, from_tensors, no_statistics
from ffnprobe.errors import DataRefused
from ffnprobe.files import write_whole
from ffnprobe.models.checkpoint import fingerprint

STATE = "scan.safetensors"


@dataclass(frozen=True)
class State:
    """How far a scan is, and what it knows so far."""

    statistics: Statistics
    done: Done
    is_finished: bool
    kept: Kept


@dataclass(frozen=True)
class StoredState:
    """A state as it was read, and the hashes of the store's other files (none in older stores)."""

    state: State
    hashes: Mapping[str, str]

    def check(self, folder: Path, manifest: Mapping[str, Any], tokens: int) -> None:
        """Refuse tensors that do not fit the rest of a store; without a checksum they may not."""
        model, settings = manifest["model"], manifest["settings"]
        length = settings["context"] - settings["bos"]
        wanted = no_statistics(model["layers"], model["neurons"], k=settings["k"], length=length)
        found = self.state.statistics.tensors()
        for name, like in wanted.tensors().items():
            if name.startswith("sample."):  # older stores, which have no checksum, have none
                continue
            if found[name].shape != like.shape or found[name].dtype != like.dtype:
                raise damaged_state(folder, f"{name} does not have the shape that was scanned")
        for side in ("strongest", "weakest"):
            texts = found[f"{side}.texts"] >> SOURCE_BITS
            if int(texts.max()) >= len(manifest["texts"]) or int(texts.min()) < -1:
                raise damaged_state(folder, f"{side}.texts names a text that was not scanned")
            windows = found[f"{side}.windows"]
            if int(windows.max()) >= tokens or int(windows.min()) < -1:
                raise damaged_state(folder, f"{side}.windows names a token that does not exist")


def write_state(folder: Path, state: State, hashes: Mapping[str, str]) -> None:
    """Replace the state, whole."""
    named = state.statistics.tensors() | state.kept.tensors()
    tensors = {name: each.contiguous() for name, each in named.items()}
    known = {**asdict(state.done), "is_finished": state.is_finished, "files": dict(hashes)}
    known["checksum"] = _checksum(known, tensors)
    # One field: several would be written in an order that changes from run to run.
    write_whole(folder / STATE, save(tensors, metadata={"scan": json.dumps(known)}))


def read_state(folder: Path) -> StoredState | None:
    """Read the last state written, its tensors mapped from the file; None before the first."""
    path = folder / STATE
    if not os.path.exists(path):
        return None
    if not path.is_file():
        raise damaged_state(folder, "it is not a regular file")
    try:
        with safe_open(path, framework="pt") as file:
            known = json.loads(file.metadata()["scan"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        checksum, hashes = known.pop("checksum", None), known.get("files", {})
        if (checksum is not None or hashes) and checksum != _checksum(known, tensors):
            raise damaged_state(folder, "its checksum is another")
        is_finished = known.pop("is_finished")
        known.pop("files", None)
        done = Done(**known)
        known_so_far = from_tensors(tensors, done.tokens)
        return StoredState(State(known_so_far, done, is_finished, read_kept(tensors)), hashes)
    except (
        SafetensorError, OSError, KeyError, TypeError, ValueError, AttributeError, RuntimeError,
    ) as error:  # fmt: skip
        raise damaged_state(folder, f"{error}") from None


def damaged_state(folder: Path, why: str) -> DataRefused:
    """Say that a state cannot be used, and what of its store still can."""
    return DataRefused(
        f"{folder / STATE} is damaged: {why.rstrip('.')}. Its numbers cannot be used; scan.json beside "
        "it says what was scanned.",
        remedy=f"the same texts again with {other_store(folder)}",
    )


def _checksum(known: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    said = json.dumps(known, sort_keys=True)
    return hash_bytes([said.encode(), fingerprint(tensors).encode()])

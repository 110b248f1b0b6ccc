"""A scan on disk: a folder that is whole at every moment and can be gone on with.

    scan.json          the model, the texts with their hashes, and the settings, written first
    tokens.json        the vocabulary as it is shown, so that examples need no model
    scan.safetensors   the statistics after the last block done, replaced whole after each

A run that is killed leaves the state after some block; the same scan goes on from there and ends
with the same bytes as one that was never stopped. A folder of another scan is refused.
"""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from ffnprobe.corpora.passages import Done
from ffnprobe.corpora.statistics import Statistics, from_tensors
from ffnprobe.errors import DataRefused, FileNotWritten
from ffnprobe.files import write_whole

FORMAT = 1
MANIFEST, TOKENS, STATE = "scan.json", "tokens.json", "scan.safetensors"


@dataclass(frozen=True)
class State:
    """How far a scan is, and what it knows so far."""

    statistics: Statistics
    done: Done
    is_finished: bool


def check_folder(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Refuse a folder that cannot be written, holds something else, or another scan."""
    if folder.exists() and not folder.is_dir():
        raise FileNotWritten(f"{folder} is a file; a store is a folder.")
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not os.access(nearest, os.W_OK):
        raise FileNotWritten(f"the folder {nearest} cannot be written to.")
    if not folder.is_dir():
        return
    _sweep(folder)
    if (folder / MANIFEST).is_file():
        _compare(folder, read_manifest(folder), manifest)
    elif any(folder.iterdir()):
        raise FileNotWritten(
            f"{folder} holds files that are no scan's.", remedy="a new folder for --store"
        )


def begin(folder: Path, manifest: Mapping[str, Any], tokens: Sequence[str]) -> None:
    """Write what a store is of, before its first state."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileNotWritten(f"{folder} cannot be made: {error.strerror}.") from None
    write_whole(folder / TOKENS, json.dumps(tokens, ensure_ascii=False).encode())
    text = json.dumps(manifest, ensure_ascii=False, indent=1)
    write_whole(folder / MANIFEST, text.encode())


def write_state(folder: Path, state: State) -> None:
    """Replace the state, whole."""
    # One field: several would be written in an order that changes from run to run.
    known = {"scan": json.dumps({**asdict(state.done), "is_finished": state.is_finished})}
    tensors = {name: each.contiguous() for name, each in state.statistics.tensors().items()}
    write_whole(folder / STATE, save(tensors, metadata=known))


def read_state(folder: Path) -> State | None:
    """Read the last state written, its tensors mapped from the file; None before the first."""
    path = folder / STATE
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            known = json.loads(file.metadata()["scan"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            is_finished = known.pop("is_finished")
            done = Done(**known)
            return State(from_tensors(tensors, done.tokens), done, is_finished)
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise DataRefused(f"{path} cannot be read: {error}.", remedy=f"rm -r {folder}") from None


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read what a store is of."""
    path = folder / MANIFEST
    if not path.is_file():
        raise DataRefused(
            f"there is no scan in {folder}.", remedy=f"ffnprobe scan … --store {folder}"
        )
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT:
            raise DataRefused(
                f"{folder} has format {manifest['format']}; this version reads {FORMAT}."
            )
        return dict(manifest)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataRefused(f"{path} cannot be read: {error}.", remedy=f"rm -r {folder}") from None


def read_tokens(folder: Path) -> tuple[str, ...]:
    """Read the vocabulary as it is shown."""
    try:
        return tuple(json.loads((folder / TOKENS).read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise DataRefused(f"{folder / TOKENS} cannot be read: {error}.") from None


def _sweep(folder: Path) -> None:
    """Remove what a killed run had begun to write and not yet put in place."""
    for name in (MANIFEST, TOKENS, STATE):
        for left in folder.glob(f".{name}.*"):
            with suppress(OSError):
                left.unlink()


def _compare(folder: Path, known: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse to mix two scans, and say in what they differ."""
    remedy = f"another --store, or rm -r {folder}"
    ours, theirs = wanted["model"], known["model"]
    if ours["fingerprint"] != theirs["fingerprint"]:
        raise DataRefused(
            f"{folder} is a scan of another model: {theirs['name']} ({theirs['fingerprint'][:8]}), "
            f"not {ours['name']} ({ours['fingerprint'][:8]}).",
            remedy=remedy,
        )
    for name, value in wanted["settings"].items():
        if known["settings"].get(name) != value:
            raise DataRefused(
                f"{folder} was made with {name}={known['settings'].get(name)}, not {value}.",
                remedy=remedy,
            )
    if known["texts"] != wanted["texts"]:
        raise DataRefused(
            f"{folder} is a scan of other texts: {_differ(known['texts'], wanted['texts'])}.",
            remedy=remedy,
        )


def _differ(known: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> str:
    """Name the first text that is not the same."""
    before, now = ({text["name"]: text for text in texts} for texts in (known, wanted))
    for name in sorted({*before, *now}):
        if name not in now:
            return f"it has {name}"
        if name not in before:
            return f"it has no {name}"
        if before[name] != now[name]:
            return f"{name} has changed"
    return "their order has changed"

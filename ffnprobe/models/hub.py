"""Models from the Hugging Face hub: downloaded once into its own cache, then never asked for again.

A model whose files are all in the cache is used as it is, with no request. A connection that is cut
is taken up where it stopped. Only data is fetched: configuration, tensors, tokenizer.
"""

from pathlib import Path

from ffnprobe.errors import ModelNotLoaded
from ffnprobe.inputs import read_json
from ffnprobe.models.families import FAMILIES

REPOSITORIES = {
    name: repository
    for family in FAMILIES.values()
    for name, (repository, _) in family.published.items()
}
SECONDS = 5.0
_TOKENIZERS = (("tokenizer.json",), ("vocab.json", "merges.txt"))
# In order of preference; the first that a folder or a repository has is taken.
WEIGHT_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)


def find_cached(repository: str) -> Path | None:
    """Return the cache's folder for a repository if everything needed is in it."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    # Older downloads of the published models stand under their short names.
    for name in (repository, *(n for n, full in REPOSITORIES.items() if full == repository)):
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
    has_tokenizer = any(all((folder / f).is_file() for f in files) for files in _TOKENIZERS)
    return has_tokenizer and any(
        (folder / name).is_file()
        and all((folder / f).is_file() for f in list_shards(folder / name))
        for name in WEIGHT_FILES
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
    if (cached := find_cached(repository)) is not None:
        return cached
    _check_reachable(repository)
    path = _download(repository, "config.json")
    if path is None:
        raise ModelNotLoaded(f"{repository} on the hub has no config.json.")
    return path.parent


def _download(repository: str, file: str) -> Path | None:
    """Fetch one file with the hub's own progress bar; None if the repository has no such file."""
    from huggingface_hub import errors, hf_hub_download

    try:
        return Path(hf_hub_download(repository, file, etag_timeout=SECONDS))
    except errors.GatedRepoError:
        raise ModelNotLoaded(
            f"{repository} asks for a login on the hub.", remedy="hf auth login"
        ) from None
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
        raise _unreachable(repository, cause=error) from None


def _check_reachable(repository: str) -> None:
    """Ask the hub once, briefly; its own library would try again for half a minute."""
    from huggingface_hub import constants, get_session, hf_hub_url

    if constants.HF_HUB_OFFLINE:
        raise _unreachable(repository)
    try:
        get_session().head(hf_hub_url(repository, "config.json"), timeout=SECONDS)
    except Exception as error:
        raise _unreachable(repository, cause=error) from None


def _unreachable(repository: str, cause: Exception | None = None) -> ModelNotLoaded:
    """Say that the hub did not answer, and the two ways on."""
    because = f" ({str(cause).splitlines()[0][:120]})" if cause is not None and str(cause) else ""
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
            raise ModelNotLoaded(
                f"{path} names {what}: {shard!r}.", remedy="download or copy it again"
            )
    return shards


def truncated(path: Path, cause: str) -> ModelNotLoaded:
    """Say that a file of weights does not hold what its head promises."""
    return ModelNotLoaded(
        f"{path} is truncated or corrupt ({cause}).", remedy="download or copy it again"
    )

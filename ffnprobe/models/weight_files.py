"""The files that hold a model's weights: their names, and the shards an index names."""

from pathlib import Path

from ffnprobe.errors import ModelNotLoaded
from ffnprobe.inputs import read_json

# In order of preference; the first that a folder or a repository has is taken.
WEIGHT_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
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
        # An index may only name files in its own folder.
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise ModelNotLoaded(f"{path} names a shard outside its folder: {shard!r}.")
    return shards

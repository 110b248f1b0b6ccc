"""A checkpoint's tensors, by GPT-2's own names, mapped from disk and never executed.

Published checkpoints differ in layout: with or without the `transformer.` prefix, with causal-mask
buffers, with an explicit copy of a tied head, in one file or in shards, safetensors or `.bin`.
Here they all become one dictionary with exactly the names and shapes the configuration demands.
A `.bin` file is a pickle: it is read with `weights_only`, which refuses anything but tensors.
"""

import json
import pickle
import re
from collections.abc import Mapping
from pathlib import Path

import torch
import xxhash
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ffnprobe.errors import ModelNotLoaded
from ffnprobe.models.config import Config

_MASKS = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)")
FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)


def read_weights(folder: Path, config: Config) -> dict[str, Tensor]:
    """Map a folder's tensors, checked against the configuration: names, shapes, finite numbers."""
    for name in FILES:
        if (folder / name).is_file():
            return arrange(_open(folder / name), config, where=str(folder))
    raise ModelNotLoaded(
        f"{folder} has no weights.", remedy=f"one of {', '.join(FILES)} beside config.json"
    )


def arrange(tensors: Mapping[str, Tensor], config: Config, *, where: str) -> dict[str, Tensor]:
    """Return tensors of any published layout by our names, checked against the configuration."""
    return check(_canonical(tensors, config), config, where=where)


def _open(path: Path) -> dict[str, Tensor]:
    """Map the tensors of one file, or of every shard an index names."""
    if path.suffix == ".json":
        try:
            shards = sorted(
                set(json.loads(path.read_text(encoding="utf-8"))["weight_map"].values())
            )
        except (ValueError, KeyError, AttributeError, OSError) as error:
            raise ModelNotLoaded(f"{path} is not an index of shards: {error}.") from None
        tensors: dict[str, Tensor] = {}
        for shard in shards:
            # An index may only name files beside it.
            if not isinstance(shard, str) or Path(shard).name != shard:
                raise ModelNotLoaded(f"{path} names a shard outside its folder: {shard!r}.")
            if not (path.parent / shard).is_file():
                raise ModelNotLoaded(f"{path} names {shard}, which is not there.")
            tensors |= _open(path.parent / shard)
        return tensors
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as file:
                return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError:
        raise ModelNotLoaded(
            f"{path} holds more than tensors and was not run.",
            remedy="a safetensors file of the same model",
        ) from None
    except (SafetensorError, RuntimeError, ValueError, EOFError, OSError) as error:
        cause = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelNotLoaded(
            f"{path} is truncated or corrupt ({cause}).", remedy="download or copy it again"
        ) from None
    if not isinstance(loaded, dict) or not all(isinstance(t, Tensor) for t in loaded.values()):
        raise ModelNotLoaded(f"{path} is not a dictionary of tensors.")
    return loaded


def _canonical(tensors: Mapping[str, Tensor], config: Config) -> dict[str, Tensor]:
    """Rename to GPT-2's own names, without mask buffers or a second copy of a tied head."""
    renamed = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    renamed = {name: t for name, t in renamed.items() if not _MASKS.fullmatch(name)}
    head, embedding = renamed.get("lm_head.weight"), renamed.get("wte.weight")
    if config.is_tied and head is not None and embedding is not None:
        if not torch.equal(head, embedding):
            raise ModelNotLoaded(
                "the configuration ties the head to the embedding, but lm_head.weight differs "
                "from wte.weight.",
                remedy='"tie_word_embeddings": false in config.json, if the head is its own',
            )
        del renamed["lm_head.weight"]
    return renamed


def check(tensors: dict[str, Tensor], config: Config, *, where: str) -> dict[str, Tensor]:
    """Return the tensors in the configuration's order if they are all it demands and finite."""
    wanted = config.shapes()
    missing = [name for name in wanted if name not in tensors]
    if missing:
        raise ModelNotLoaded(f"{where} lacks {_some(missing)}.")
    unknown = [name for name in tensors if name not in wanted]
    if unknown:
        raise ModelNotLoaded(f"{where} holds {_some(unknown)}, which a GPT-2 does not have.")
    for name, shape in wanted.items():
        if tuple(tensors[name].shape) != shape:
            raise ModelNotLoaded(
                f"{where}: {name} is {list(tensors[name].shape)}; config.json says {list(shape)}."
            )
        if not tensors[name].is_floating_point():
            raise ModelNotLoaded(f"{where}: {name} holds {tensors[name].dtype}, not floats.")
        # A sum is finite whenever every number is and stays far below overflow: cheap, then exact.
        total = tensors[name].sum(dtype=torch.float32)
        if not torch.isfinite(total) and not torch.isfinite(tensors[name]).all():
            raise ModelNotLoaded(f"{where}: {name} holds numbers that are not finite (NaN or inf).")
    return {name: tensors[name] for name in wanted}


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """Hash names, types, shapes and bytes: equal for equal weights, whatever file they came in."""
    digest = xxhash.xxh3_128()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()

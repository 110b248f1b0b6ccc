"""Second moments of keys in a file: one safetensors file, checked when it is read, replaced as a whole.

A store is a folder with `keys.safetensors`: the upper triangles of the sums, in float64, so that
a scan that resumes ends as one that was never stopped. Pocket's own file holds instead the Cholesky
factors of its second moments, in half precision: their product is a second moment, rounded or not.
"""

import json
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ffnprobe.corpora.passages import Done
from ffnprobe.editing.key_moments import KeyMoments
from ffnprobe.editing.solves import factor_live
from ffnprobe.errors import DataRefused
from ffnprobe.files import write_whole
from ffnprobe.models.provenance import Provenance

FILE = "keys.safetensors"
SUM, FACTOR = "sum.", "factor."


def write_keys(folder: Path, moments: KeyMoments) -> None:
    """Replace a store's file."""
    tensors = {f"{SUM}{layer}": _pack(moments.sums[layer]) for layer in moments.layers}
    write_whole(folder / FILE, save({**tensors, **_small(moments)}, _describe(moments)))


def pack_factors(path: Path, moments: KeyMoments) -> None:
    """Write the Cholesky factors of second moments, in half precision."""
    tensors = {}
    for layer in moments.layers:
        moment = moments.of(layer)
        lower, live = factor_live(moment)
        spoken = live.nonzero()[:, 0]
        factor = torch.zeros_like(moment)  # of silent neurons nothing is kept
        factor[spoken[:, None], spoken] = lower.mT
        tensors[f"{FACTOR}{layer}"] = _pack(factor).half()
    write_whole(path, save({**tensors, **_small(moments)}, _describe(moments)))


def _small(moments: KeyMoments) -> dict[str, Tensor]:
    # int32 holds every token id; no prefix is a tensor of no rows.
    prefixes = torch.tensor(moments.prefixes, dtype=torch.int32)
    return {"totals": moments.totals, "prefixes": prefixes}


def _describe(moments: KeyMoments) -> dict[str, str]:
    return {
        "done": json.dumps(asdict(moments.done)),
        "is_finished": json.dumps(moments.is_finished),
        "provenance": json.dumps(moments.provenance.as_dict()),
    }


def read_keys(folder: Path, *, like: Provenance | None = None) -> KeyMoments | None:
    """Read a store, None if it has not begun; refuse one of another model, corpus or setting."""
    path = folder / FILE
    if not path.is_file():
        return None
    found = read_file(path)
    if like is not None:
        for name in ("identity", "settings"):
            if getattr(found.provenance, name) != getattr(like, name):
                what = "another model" if name == "identity" else "other texts or settings"
                raise DataRefused(
                    f"{folder} is a scan of keys with {what}.", remedy="another store"
                )
    return found


def read_file(path: Path) -> KeyMoments:
    """Read one file of second moments, or say that it cannot be read."""
    try:
        with safe_open(path, framework="pt") as file:
            known = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        done = Done(**json.loads(known["done"]))
        sums = {
            int(name.partition(".")[2]): _open(name, tensor, done.tokens)
            for name, tensor in tensors.items()
            if name.startswith((SUM, FACTOR))
        }
        return KeyMoments(
            sums=dict(sorted(sums.items())),
            totals=tensors["totals"],
            done=done,
            prefixes=tuple(map(tuple, tensors["prefixes"].tolist())),
            provenance=Provenance.from_dict(json.loads(known["provenance"])),
            is_finished=json.loads(known["is_finished"]),
        )
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        cause = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataRefused(
            f"{path} is not a scan of keys, or is damaged ({cause}).", remedy="scan_keys again"
        ) from None


def _open(name: str, packed: Tensor, tokens: int) -> Tensor:
    """Return the sum a triangle stands for."""
    upper = _unpack(packed.double())
    if name.startswith(FACTOR):
        return tokens * (upper.mT @ upper)
    return upper + upper.triu(1).mT


def _pack(square: Tensor) -> Tensor:
    rows, columns = torch.triu_indices(*square.shape)
    return square[rows, columns].contiguous()


def _unpack(packed: Tensor) -> Tensor:
    wide = int(((8 * len(packed) + 1) ** 0.5 - 1) // 2)
    square = torch.zeros(wide, wide, dtype=packed.dtype)
    rows, columns = torch.triu_indices(wide, wide)
    square[rows, columns] = packed
    return square

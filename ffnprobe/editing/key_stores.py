"""Second moments of keys as a part of a store, and in the package.

A store holds the upper triangles of the sums, in float64, so that a scan that resumes ends as one that was
never stopped. Pocket's own file holds instead the Cholesky factors of its second moments, in half precision:
their product is a second moment, rounded or not.
"""

from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from ffnprobe.corpora.passages import Done
from ffnprobe.editing.key_moments import KeyMoments
from ffnprobe.editing.solves import factor_live
from ffnprobe.errors import DataRefused
from ffnprobe.files import write_whole
from ffnprobe.models import pocket
from ffnprobe.models.model import Model
from ffnprobe.provenance import Provenance
from ffnprobe.store import Part, Store, encode_part, open_store, read_part

KEYS, PART = "scan of keys", "moments"
SUM, FACTOR = "sum.", "factor."
PACKED = pocket.FOLDER / "keys.safetensors"


def write_keys(store: Store, moments: KeyMoments) -> None:
    """Replace what a store holds."""
    sums = {f"{SUM}{layer}": _pack(moments.sums[layer]) for layer in moments.layers}
    store.write(PART, *_describe(moments, sums))


def pack_factors(path: Path, moments: KeyMoments) -> None:
    """Write the Cholesky factors of second moments, in half precision."""
    factors = {}
    for layer in moments.layers:
        moment = moments.of(layer)
        lower, live = factor_live(moment)
        spoken = live.nonzero()[:, 0]
        factor = torch.zeros_like(moment)  # of silent neurons nothing is kept
        factor[spoken[:, None], spoken] = lower.mT
        factors[f"{FACTOR}{layer}"] = _pack(factor).half()
    write_whole(path, encode_part(*_describe(moments, factors)))


def open_keys(folder: Path, *, remedy: str) -> KeyMoments:
    """Open a store to read."""
    found = read_keys(open_store(folder, KEYS, remedy=remedy))
    if found is None:
        raise DataRefused(f"the {KEYS} in {folder} has not begun.", remedy="the same scan again")
    return found


def read_keys(store: Store) -> KeyMoments | None:
    """Read what a store holds, None before the first block."""
    part = store.read(PART)
    return None if part is None else _read(part)


def embedded_keys(model: Model) -> KeyMoments | None:
    """Return the second moments in the package if they are of this very model.

    `analyses/pocket/pack_keys.py` makes the file.
    """
    if model.source.kind != "embedded" or not PACKED.is_file():
        return None
    try:
        return _read_packed(PACKED).check(model)
    except DataRefused:
        return None


@cache
def _read_packed(path: Path) -> KeyMoments:
    return _read(read_part(path))


def _describe(moments: KeyMoments, tensors: Mapping[str, Tensor]) -> Part:
    # int32 holds every token id; no prefix is a tensor of no rows.
    prefixes = torch.tensor(moments.prefixes, dtype=torch.int32)
    said = {
        "done": asdict(moments.done), "is_finished": moments.is_finished,
        "provenance": moments.provenance.as_dict(),
    }  # fmt: skip
    return Part(said, {**tensors, "totals": moments.totals, "prefixes": prefixes})


def _read(part: Part) -> KeyMoments:
    said, tensors = part
    done = Done(**said["done"])
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
        provenance=Provenance.from_dict(said["provenance"]),
        is_finished=said["is_finished"],
    )


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

"""The k extreme examples of each neuron, at most one a passage and without ties, and some between.

The strongest are those of highest activation. The weakest are those of lowest score (of a gated
neuron, its gate's score): below zero, an activation function such as GELU rises again toward zero, so
the lowest activations are not what closes a neuron. Each example keeps both numbers.

Of two equal values the one in the earlier passage comes first (passages are numbered in the
order of texts and positions); within a passage the first of equal ones is taken. A value and
its passage are packed into one integer that sorts so, and the k largest integers are kept:

    high 32 bits: the float's bits, made to grow with it    low 32 bits: the passage, counted down

The weakest examples are the strongest of −score. Merging is exactly associative: keeping the k largest
of a set of distinct integers does not depend on how the set was split.

Between its extremes, a neuron is shown by tokens drawn at random, the same for every neuron: from each
passage one, and of the passages `SAMPLE`, by hashes of the passage's number. So the draw does not depend on
how the corpus is cut into blocks, and of two samples the sample of both is found exactly. Sorted by a
neuron's activation, the sample shows its quantiles.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float32, Int32, Int64
from torch import Tensor

from ffnprobe.corpora.passages import Block, hash_numbers

# Tokens of context kept around an example, itself among them.
BEFORE, AFTER = 10, 5
WINDOW = BEFORE + 1 + AFTER
NO_TOKEN = -1
SAMPLE = 20  # tokens drawn at random
GROUP = 8
# From so many positions on, an extreme is looked for in groups.
LONG = 256
# Neurons whose examples are merged together; what that takes stays in a core's cache.
ROWS_AT_ONCE = 512
_LAST_PASSAGE = 2**32 - 1
_EMPTY = -(2**63)


@dataclass(frozen=True, eq=False)
class Occurrences:
    """Tokens of a corpus, and activations and scores there; without one, text is −1.

    Of each neuron's extremes the first is the most extreme; the tokens of a sample are the same for all.
    """

    activations: Float32[Tensor, "layer neuron k"]
    scores: Float32[Tensor, "layer neuron k"]
    passages: Int64[Tensor, "*extreme k"]
    texts: Int64[Tensor, "*extreme k"]
    positions: Int32[Tensor, "*extreme k"]
    windows: Int32[Tensor, "*extreme k window"]


def no_occurrences(layers: int, neurons: int, k: int, *, is_sample: bool = False) -> Occurrences:
    """Start without tokens."""
    shape = (layers, neurons, k)
    places = (k,) if is_sample else shape
    return Occurrences(
        activations=torch.full(shape, float("nan")),
        scores=torch.full(shape, float("nan")),
        passages=torch.full(places, -1),
        texts=torch.full(places, -1),
        positions=torch.full(places, -1, dtype=torch.int32),
        windows=torch.full((*places, WINDOW), NO_TOKEN, dtype=torch.int32),
    )


def merge_peaks(a: Occurrences, b: Occurrences, *, by: str, sign: int) -> Occurrences:
    """Keep the k of both with the highest activations (or scores); sign −1 for the lowest."""
    k = a.activations.shape[-1]
    ours, theirs = (
        {name: rearrange(each, "layer neuron ... -> (layer neuron) ...") for name, each in vars(p).items()}
        for p in (a, b)
    )  # fmt: skip
    kept = {name: each.clone() for name, each in ours.items()}
    # Both are sorted, so a neuron whose best new example is behind its last old one stays as it is.
    last, best = (
        _keys(each, by, sign, at) for each, at in ((ours, np.s_[:, k - 1]), (theirs, np.s_[:, 0]))
    )
    changed = torch.nonzero(best > last)[:, 0]
    for rows in torch.split(changed, ROWS_AT_ONCE):
        keys = torch.cat([_keys(each, by, sign, rows) for each in (ours, theirs)], dim=1)
        chosen = torch.topk(keys, k).indices
        row, column = torch.nonzero(chosen >= k, as_tuple=True)
        there = (rows[row], chosen[row, column] - k)
        for name, each in kept.items():
            merged = ours[name][rows[:, None], chosen.clamp(max=k - 1)]
            merged[row, column] = theirs[name][there]
            each[rows] = merged
    return Occurrences(**{name: each.view_as(vars(a)[name]) for name, each in kept.items()})


def _keys(peaks: dict[str, Tensor], by: str, sign: int, at: Any) -> Int64[Tensor, "..."]:
    """Pack the examples of one rank, or all of some neurons."""
    values, passages = peaks[by][at], peaks["passages"][at]
    return torch.where(passages < 0, _EMPTY, pack(sign * values, passages))


def pack(
    values: Float32[Tensor, "*axes"], passages: Int64[Tensor, "*axes"]
) -> Int64[Tensor, "*axes"]:
    """Pack values and passages into integers that sort by value, then by the earlier passage."""
    # Adding 0 turns −0 into 0, which it equals.
    bits = (values + 0.0).view(torch.int32)
    growing = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long()
    return (growing << 32) | (_LAST_PASSAGE - passages)


def unpack(keys: Int64[Tensor, "*axes"]) -> tuple[Tensor, Tensor]:
    """Take values and passages out of packed integers; where there is none, passage −1."""
    growing = (keys >> 32).int()
    values = (growing ^ ((growing >> 31) & 0x7FFFFFFF)).view(torch.float32)
    passages = _LAST_PASSAGE - (keys & _LAST_PASSAGE)
    is_empty = keys == _EMPTY
    return values.masked_fill(is_empty, float("nan")), passages.masked_fill(is_empty, -1)


class TopK:
    """One layer's k highest values of a block (sign −1: the lowest), kept while its batches come in.

    Each value is kept with another of the same neuron and token.
    """

    def __init__(self, neurons: int, k: int, device: torch.device, *, sign: int = 1) -> None:
        self.sign = sign
        self.keys = torch.full((neurons, k), _EMPTY, device=device)
        self.offsets = torch.full((neurons, k), -1, dtype=torch.int32, device=device)
        self.others = torch.full((neurons, k), float("nan"), device=device)

    def see(
        self,
        values: Float32[Tensor, "batch pos neuron"],
        others: Float32[Tensor, "batch pos neuron"],
        passages: Int64[Tensor, " batch"],
    ) -> None:
        """Let each passage's highest (or lowest) value of each neuron compete."""
        values, offsets = find_largest(values, sign=self.sign)
        beside = torch.take_along_dim(others, offsets[:, None], dim=1)[:, 0]
        beside = rearrange(beside, "batch neuron -> neuron batch")
        values = rearrange(values, "batch neuron -> neuron batch").contiguous()
        keys = pack(values, passages.expand_as(values))
        offsets = rearrange(offsets, "batch neuron -> neuron batch").int()
        self.keys, chosen = torch.topk(torch.cat([self.keys, keys], dim=1), self.keys.shape[1])
        self.offsets, self.others = (
            torch.take_along_dim(torch.cat(each, dim=1), chosen, dim=1)
            for each in ((self.offsets, offsets), (self.others, beside))
        )


def find_largest(
    values: Float32[Tensor, "batch pos neuron"], *, sign: int = 1
) -> tuple[Float32[Tensor, "batch neuron"], Int64[Tensor, "batch neuron"]]:
    """Find the largest of sign × values of each neuron in each passage, and the first position of it.

    Asking for the position of a maximum costs many times the maximum itself. In a long passage the
    group of positions that holds it is found first; in a short one, the position that equals it with the
    most positions after it.
    """
    length = values.shape[1]
    if length < LONG:
        extremes = values.amax(dim=1) if sign > 0 else values.amin(dim=1)
        left = torch.arange(length, 0, -1, dtype=torch.int16, device=values.device)[:, None]
        after = torch.where(values == extremes[:, None], left, left.new_zeros(())).amax(dim=1)
        # Where nothing equals it, it is not a number; the run is refused once it is at its end.
        return sign * extremes, (length - after.long()).clamp(max=length - 1)
    extreme, most = (torch.amax, torch.max) if sign > 0 else (torch.amin, torch.min)
    groups = torch.stack([extreme(group, dim=1) for group in torch.split(values, GROUP, dim=1)])
    largest, group = most(groups, dim=0)
    inside = torch.arange(GROUP, device=values.device)[:, None]
    rows = group[:, None] * GROUP + inside
    # Past the end the last position is repeated; the first of equals is taken, so nothing changes.
    members = torch.take_along_dim(values, rows.clamp(max=length - 1), dim=1)
    return sign * largest, group * GROUP + most(members, dim=1).indices


def locate(block: Block, numbers: Tensor, offsets: Tensor) -> dict[str, Tensor]:
    """Look up the passage, text, position and surrounding tokens of examples; none where −1."""
    is_none = numbers < 0
    texts, starts = (torch.tensor([passage[part] for passage in block.passages]) for part in (0, 1))
    none_before, none_after = [NO_TOKEN] * BEFORE, [NO_TOKEN] * AFTER
    lengths = torch.tensor([len(passage.ids) + BEFORE + AFTER for passage in block.passages])
    padded = [token for p in block.passages for token in (*none_before, *p.ids, *none_after)]
    first = (torch.cumsum(lengths, dim=0) - lengths)[numbers] + offsets
    windows = torch.tensor(padded, dtype=torch.int32)[first[..., None] + torch.arange(WINDOW)]
    return {
        "passages": torch.where(is_none, -1, block.first + numbers),
        "texts": torch.where(is_none, -1, texts[numbers]),
        "positions": (starts[numbers] + offsets).int().masked_fill(is_none, -1),
        "windows": windows.masked_fill(is_none[..., None], NO_TOKEN),
    }


def merge_samples(a: Occurrences, b: Occurrences) -> Occurrences:
    """Keep the tokens of both whose passages have the highest hashes."""
    passages = torch.cat([a.passages, b.passages])
    chosen = torch.from_numpy(_order(passages.numpy())[: len(a.passages)].copy())

    def join(name: str) -> Tensor:
        axis = 2 if name in ("activations", "scores") else 0
        return torch.cat([vars(a)[name], vars(b)[name]], dim=axis).index_select(axis, chosen)

    return Occurrences(**{name: join(name) for name in vars(a)})


def draw(block: Block) -> dict[int, tuple[int, int]]:
    """Draw a block's tokens: of each passage chosen, by its number in the block, its slot and offset."""
    numbers = block.first + np.arange(len(block.passages))
    chosen = _order(numbers)[:SAMPLE].tolist()
    offsets = hash_numbers(numbers + 2**40)
    return {
        number: (slot, int(offsets[number] % np.uint64(len(block.passages[number].ids))))
        for slot, number in enumerate(chosen)
    }


def _order(passages: np.ndarray) -> np.ndarray:
    """Order passages by their hashes, the highest first; those that are none last."""
    keys = np.where(passages < 0, np.uint64(0), hash_numbers(passages) | np.uint64(1))
    return np.lexsort((passages, np.iinfo(np.uint64).max - keys))

"""The k strongest activations of each neuron, at most one a passage, in an order without ties.

Of two equal activations the one in the earlier passage comes first (passages are numbered in the
order of texts and positions); within a passage the first of equal ones is taken. An activation and
its passage are packed into one integer that sorts so, and the k largest integers are kept:

    high 32 bits: the float's bits, made to grow with it    low 32 bits: the passage, counted down

The weakest examples are the strongest of −a. Merging is exactly associative: keeping the k largest
of a set of distinct integers does not depend on how the set was split.
"""

from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Float32, Int32, Int64
from torch import Tensor

# Tokens of context kept around an example, itself among them.
BEFORE, AFTER = 10, 5
WINDOW = BEFORE + 1 + AFTER
NO_TOKEN = -1
GROUP = 8
_LAST_PASSAGE = 2**32 - 1
_EMPTY = -(2**63)


@dataclass(frozen=True, eq=False)
class Peaks:
    """For each neuron the k strongest examples, the first the strongest; without one, text is −1."""

    activations: Float32[Tensor, "layer neuron k"]
    passages: Int64[Tensor, "layer neuron k"]
    texts: Int64[Tensor, "layer neuron k"]
    positions: Int32[Tensor, "layer neuron k"]
    windows: Int32[Tensor, "layer neuron k window"]


def no_peaks(layers: int, neurons: int, k: int) -> Peaks:
    """Start without examples."""
    shape = (layers, neurons, k)
    return Peaks(
        activations=torch.full(shape, float("nan")),
        passages=torch.full(shape, -1),
        texts=torch.full(shape, -1),
        positions=torch.full(shape, -1, dtype=torch.int32),
        windows=torch.full((*shape, WINDOW), NO_TOKEN, dtype=torch.int32),
    )


def merge_peaks(a: Peaks, b: Peaks, *, sign: int) -> Peaks:
    """Keep the k strongest of both; sign −1 for the weakest."""
    k = a.activations.shape[-1]
    both = {name: torch.cat([each, vars(b)[name]], dim=2) for name, each in vars(a).items()}
    keys = pack(sign * both["activations"], both["passages"])
    keys = torch.where(both["passages"] < 0, _EMPTY, keys)
    chosen = torch.topk(keys, k).indices
    windows = torch.take_along_dim(both.pop("windows"), chosen[..., None], dim=2)
    kept = {name: torch.take_along_dim(each, chosen, dim=2) for name, each in both.items()}
    return Peaks(**kept, windows=windows)


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


class Race:
    """One layer's k strongest activations of a block, kept while its batches come in."""

    def __init__(self, neurons: int, k: int, device: torch.device) -> None:
        self.keys = torch.full((neurons, k), _EMPTY, device=device)
        self.offsets = torch.full((neurons, k), -1, dtype=torch.int32, device=device)

    def see(
        self, activations: Float32[Tensor, "batch pos neuron"], passages: Int64[Tensor, " batch"]
    ) -> None:
        """Let each passage's strongest activation of each neuron compete."""
        values, offsets = find_largest(activations)
        values = rearrange(values, "batch neuron -> neuron batch").contiguous()
        keys = pack(values, passages.expand_as(values))
        offsets = rearrange(offsets, "batch neuron -> neuron batch").int()
        keys, offsets = (
            torch.cat([self.keys, keys], dim=1),
            torch.cat([self.offsets, offsets], dim=1),
        )
        self.keys, chosen = torch.topk(keys, self.keys.shape[1])
        self.offsets = torch.take_along_dim(offsets, chosen, dim=1)


def find_largest(
    activations: Float32[Tensor, "batch pos neuron"],
) -> tuple[Float32[Tensor, "batch neuron"], Int64[Tensor, "batch neuron"]]:
    """Find each neuron's largest activation in each passage and the first position that has it.

    The group of positions that holds it is found first, since asking for the position of a maximum
    costs many times the maximum itself.
    """
    groups = torch.stack([group.amax(dim=1) for group in torch.split(activations, GROUP, dim=1)])
    values, group = groups.max(dim=0)
    inside = torch.arange(GROUP, device=activations.device)[:, None]
    rows = group[:, None] * GROUP + inside
    # Past the end the last position is repeated; the first of equals is taken, so nothing changes.
    members = torch.take_along_dim(activations, rows.clamp(max=activations.shape[1] - 1), dim=1)
    return values, group * GROUP + members.argmax(dim=1)

"""Put neurons and tokens in order: by value, and equal values by layer, neuron and token id.

A table is the same on every run because no order is left to chance.
"""

from collections.abc import Sequence

import torch
from einops import rearrange, reduce
from jaxtyping import Float, Int
from torch import Tensor

from ffnprobe.errors import OptionRefused
from ffnprobe.names import NeuronId, Site

TOKENS_IN_GROUP = 128


def check_top(top: int | None, most: int, *, of: str) -> int:
    """Refuse a number of rows that no table can have; None is all of them."""
    if top is None:
        return most
    if not 1 <= top <= most:
        raise OptionRefused(f"top = {top}: there are {most} {of}.", remedy=f"1 to {most}")
    return top


def sort_neurons(
    values: Float[Tensor, "layer neuron"], k: int, *, smallest: bool = False
) -> list[NeuronId]:
    """Name the k neurons of largest (or smallest) value, ties by layer and neuron."""
    flat = rearrange(values, "layer neuron -> 1 (layer neuron)")
    (order,) = _best_columns(flat, min(k, flat.shape[-1]), smallest=smallest).tolist()
    return [NeuronId(*divmod(number, values.shape[-1])) for number in order]


def sort_sites(values: Float[Tensor, "layer pos neuron"], k: int) -> list[Site]:
    """Name the k neurons at positions of largest value, ties by layer, position and neuron."""
    (order,) = top_tokens(values.ravel()[None], min(k, values.numel()))[1].tolist()
    return [name_site(cell, values.shape) for cell in order]


def name_site(cell: int, shape: Sequence[int]) -> Site:
    """Turn an index into the flattened `[layer pos neuron]` into a neuron and a position."""
    rest, neuron = divmod(cell, shape[-1])
    layer, position = divmod(rest, shape[-2])
    return NeuronId(layer, neuron), position


def top_tokens(
    values: Float[Tensor, "row vocab"], k: int, *, smallest: bool = False
) -> tuple[Float[Tensor, "row k"], Int[Tensor, "row k"]]:
    """Find each row's k largest (or smallest) values and their token ids, ties by token id.

    Tokens are taken in groups. The k groups with the best members hold the k best tokens, so only
    these few groups (and the last, incomplete one) are looked at closely, not the vocabulary.
    """
    whole = values.shape[-1] // TOKENS_IN_GROUP * TOKENS_IN_GROUP
    if whole <= k * TOKENS_IN_GROUP:
        columns = _best_columns(values, k, smallest=smallest)
        return torch.take_along_dim(values, columns, dim=-1), columns
    groups = rearrange(
        values[:, :whole], "row (group token) -> row group token", token=TOKENS_IN_GROUP
    )
    best = reduce(groups, "row group token -> row group", "min" if smallest else "max")
    # In the order of their ids, so that the column of a candidate still breaks ties by token id.
    chosen = torch.sort(_best_columns(best, k, smallest=smallest), dim=-1).values[:, :, None]
    inside = torch.arange(TOKENS_IN_GROUP, device=values.device)
    ids = rearrange(chosen * TOKENS_IN_GROUP + inside, "row group token -> row (group token)")
    rest = torch.arange(whole, values.shape[-1], device=values.device).expand(len(values), -1)
    ids = torch.cat([ids, rest], dim=-1)
    candidates = torch.take_along_dim(values, ids, dim=-1)
    columns = _best_columns(candidates, k, smallest=smallest)
    values, ids = (torch.take_along_dim(each, columns, dim=-1) for each in (candidates, ids))
    return values, ids


def _best_columns(
    values: Float[Tensor, "row column"], k: int, *, smallest: bool
) -> Int[Tensor, "row k"]:
    """Find the columns of each row's k best values, the best first, ties by column."""
    more = min(k + 1, values.shape[-1])
    found = torch.topk(values, more, largest=not smallest)
    # Which of several equal values topk takes is left to chance. So sort them, and where the next
    # value is equal too, sort the whole row.
    columns = torch.sort(found.indices[:, :k], dim=-1).values
    kept = torch.take_along_dim(values, columns, dim=-1)
    columns = torch.take_along_dim(columns, _order(kept, smallest=smallest), dim=-1)
    if more > k:
        is_tied = found.values[:, k - 1] == found.values[:, k]
        columns[is_tied] = _order(values[is_tied], smallest=smallest)[:, :k]
    return columns


def _order(values: Float[Tensor, "row column"], *, smallest: bool) -> Int[Tensor, "row column"]:
    return torch.sort(values, dim=-1, descending=not smallest, stable=True).indices

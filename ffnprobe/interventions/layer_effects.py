"""Lay results out: chosen neurons back in their cells, layer × position maps."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor

from ffnprobe.documents.blocks import Block, Figure, Table, Words
from ffnprobe.layout import lay_out_map
from ffnprobe.results import Result, Tables

if TYPE_CHECKING:
    import pandas as pd


class LayerMap(Result):
    """A result of which each layer and position has a number, read as a grid."""

    def document(self, tables: Tables = None) -> Iterator[Block]:
        """Show a row for each layer and a column for each token; the table is folded."""
        table = (self.tables() if tables is None else tables)["map"]
        tokens = table.rename(columns={"token_target": "token"})
        grid = lay_out_map(tokens, "carried" if "carried" in table else "effect")
        yield Figure(self, instead=Table(grid, is_whole=True))
        yield Words(self.caption, "soft")
        yield from self.fold(tables)


def spread(
    chosen: Bool[Tensor, "layer neuron"], values: Float[Tensor, " row"]
) -> Float[Tensor, "layer neuron"]:
    """Put the chosen neurons' values in their cells, NaN elsewhere."""
    everywhere = torch.full(chosen.shape, float("nan"), dtype=values.dtype)
    everywhere[chosen] = values
    return everywhere


def table_map(
    columns: Mapping[str, Float[Tensor, "layer pos"]],
    tokens: Mapping[str, tuple[str, ...]],
    positions: Sequence[int],
) -> "pd.DataFrame":
    """Table every layer at each of the positions in order, with the tokens that stand there."""
    import pandas as pd

    layers = range(len(next(iter(columns.values()))))
    frame = pd.DataFrame(
        [(layer, position) for layer in layers for position in positions],
        columns=["layer", "position"],
    )
    for name, shown in tokens.items():
        frame[name] = [*shown] * len(layers)
    for name, values in columns.items():
        frame[name] = rearrange(values, "layer pos -> (layer pos)").double().numpy()
    return frame

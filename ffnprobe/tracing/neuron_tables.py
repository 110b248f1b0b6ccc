"""Tables of the neurons that do most on a prompt."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor

from ffnprobe.models.model import Model
from ffnprobe.reading.neuron_tables import list_neurons
from ffnprobe.reading.ordering import check_top, sort_neurons

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["list_neurons", "list_top"]


def list_top(
    model: Model,
    top: int | None,
    *,
    by: Float[Tensor, "layer neuron"],
    columns: Mapping[str, Float[Tensor, "layer neuron"]],
    signs: Float[Tensor, "layer neuron"],
    smallest: bool = False,
    of: str = "neurons",
) -> "pd.DataFrame":
    """Table the `top` neurons of largest (or smallest) value, leaving out those without one."""
    missing = by.isnan()
    top = check_top(top, int((~missing).sum()), of=of)
    last = float("inf") if smallest else float("-inf")
    neurons = sort_neurons(by.masked_fill(missing, last), top, smallest=smallest)
    return list_neurons(model, neurons, columns, signs=signs)

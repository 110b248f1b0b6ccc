"""Which layers a reading looks at: all, a text such as "3-5", or numbers."""

from collections.abc import Sequence

from ffnprobe.errors import OptionRefused
from ffnprobe.models.model import Model
from ffnprobe.names import check_layer, expand_layers


def choose_layers(model: Model, layers: str | Sequence[int] | None) -> list[int]:
    """List the layers meant, each once and in order, or say which the model has."""
    count = model.config.layers
    if layers is None:
        return list(range(count))
    if isinstance(layers, str):
        return expand_layers(layers, layers=count, model=model.name)
    if not layers:
        raise OptionRefused("no layer is named.", remedy=f"0 to {count - 1}")
    return sorted({check_layer(n, layers=count, named=f"L{n}", model=model.name) for n in layers})

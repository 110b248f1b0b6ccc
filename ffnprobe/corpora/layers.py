"""Survey a model on a cluster, layer by layer: the same table as `survey` makes here.

Each worker has as many threads as this process, since sums are rounded as they are divided.
"""

from collections import deque
from typing import TYPE_CHECKING, Any

import torch

from ffnprobe.corpora.clusters import start_pool
from ffnprobe.models.model import Model
from ffnprobe.reading.layers import choose_layers
from ffnprobe.reading.surveys import Progress, survey

if TYPE_CHECKING:
    import pandas as pd


def survey_on_ray(
    model: Model,
    *,
    layers: str | None = None,
    k: int = 5,
    workers: int | None = None,
    address: str | None = None,
    progress: Progress | None = None,
) -> "pd.DataFrame":
    """Survey the layers named (all, if none is) on Ray, and put the tables together."""
    import pandas as pd

    chosen = choose_layers(model, layers)
    tables = []
    threads = torch.get_num_threads()
    with start_pool(model, workers=workers, address=address, threads=threads) as pool:
        under_way = deque(
            pool.submit(order, survey_layer, layer, k) for order, layer in enumerate(chosen)
        )
        while under_way:
            tables.append(pool.result(under_way.popleft()))
            if progress is not None:
                progress(len(tables) * model.config.d_mlp, len(chosen) * model.config.d_mlp)
    known: dict[str, Any] = tables[0].attrs["provenance"]
    alone, all_of_them = f"layers {chosen[0]};", f"layers {','.join(map(str, chosen))};"
    frame: pd.DataFrame = pd.concat(tables, ignore_index=True)
    frame.attrs["provenance"] = known | {
        "source": str(model.source),
        "settings": known["settings"].replace(alone, all_of_them),
    }
    return frame


def survey_layer(model: Model, layer: int, k: int) -> "pd.DataFrame":
    """Survey one layer."""
    return survey(model, layers=[layer], k=k)

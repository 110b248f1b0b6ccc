"""The current-token look-up: the baseline a rule has to beat.

Each token predicts the mean activation it had in the first half, v(t); the prediction is "strong" where
v(t) is at least the value that had the best F1 there.
"""

import numpy as np
import torch
from torch import Tensor


def make_lookup(
    sums: Tensor, counts: np.ndarray, rows: np.ndarray, neurons: np.ndarray
) -> tuple[Tensor, Tensor]:
    """Return the means by token `[row column]`, in half precision, and the value to call strong.

    `rows` and `neurons` are the strong tokens' rows and columns.
    """
    many, columns = sums.shape
    means = (sums / torch.from_numpy(counts.clip(min=1))[:, None]).half().float()
    hits = torch.bincount(
        torch.from_numpy(rows * columns + neurons), minlength=many * columns
    ).reshape(many, columns)
    values, order = torch.sort(means, dim=0, descending=True, stable=True)
    all_hits = torch.take_along_dim(hits, order, dim=0).cumsum(0)
    all_seen = torch.from_numpy(counts)[order].cumsum(0)
    f1 = 2 * all_hits / (all_seen + hits.sum(dim=0))
    best = f1.argmax(dim=0)
    return means.half(), values.gather(0, best[None])[0]

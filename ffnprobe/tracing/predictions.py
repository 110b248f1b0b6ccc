"""What the model says next: the likeliest tokens, a token's rank, and the options they take."""

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.errors import OptionRefused
from ffnprobe.models.vocab import Vocab
from ffnprobe.reading.ordering import check_top

if TYPE_CHECKING:
    import pandas as pd


def table_predictions(
    logits: Float[Tensor, " vocab"], vocab: Vocab, top: int | None, *, temperature: float
) -> "pd.DataFrame":
    """Table the `top` likeliest tokens: rank, token, id, logit, probability at a temperature."""
    import pandas as pd

    check_temperature(temperature)
    top = check_top(top, len(logits), of="tokens")
    logits = logits.double()
    probabilities = torch.softmax(logits / temperature, dim=-1)
    # A stable sort breaks ties by token id, so that a table is the same on every run.
    order = torch.sort(logits, descending=True, stable=True).indices[:top].tolist()
    return pd.DataFrame(
        {
            "rank": range(1, top + 1),
            "token": vocab.show_all(order),
            "id": order,
            "logit": logits[order].numpy(),
            "probability": probabilities[order].numpy(),
        }
    )


def rank_of(logits: Float[Tensor, "... vocab"], token: int) -> Tensor:
    """Count a token's rank among all, the likeliest being 1; ties by token id."""
    own = logits[..., token, None]
    ahead = (logits > own).sum(-1) + (logits[..., :token] == own).sum(-1)
    return 1 + ahead


def check_temperature(temperature: float) -> None:
    """Refuse temperatures that have no distribution."""
    if not 0 < temperature < float("inf"):
        raise OptionRefused(
            f"temperature {temperature} has no distribution.",
            remedy="a number above 0, such as 1.0",
        )

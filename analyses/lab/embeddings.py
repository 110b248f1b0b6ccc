"""How similar tokens are by their embeddings, and how temperature changes the next token.

A cosine means little by itself (in some models all embeddings share a direction), so a pair is
ranked: what share of the vocabulary is less like the one than the other is, averaged over both.
Above 0.975 the two are **related**, below 0.025 **opposed**, else **unrelated**.

>>> import ffnprobe as fp
>>> compare_tokens(fp.load("pocket"), [" basketball", " football"]).columns.tolist()
['token', 'other', 'dot', 'cosine', 'rank', 'kind']
"""

from collections.abc import Sequence
from itertools import combinations

import pandas as pd
import torch
from einops import einsum, reduce
from jaxtyping import Float
from torch import Tensor

from ffnprobe.models.model import Model
from ffnprobe.tracing.trace import Trace, check_temperature

RELATED, OPPOSED = 0.975, 0.025
TEMPERATURES = tuple(round(0.1 * step, 1) for step in range(1, 31))


def compare_tokens(model: Model, texts: Sequence[str]) -> pd.DataFrame:
    """Table every pair of tokens: dot product, cosine, rank in the vocabulary, kind."""
    ids = [model.vocab.one(text) for text in texts]
    vectors = model.embedding[ids].cpu()
    dots = einsum(vectors, vectors, "token d_model, other d_model -> token other")
    cosines = torch.stack([_cosines(model, token) for token in ids])
    below = cosines[:, None, :] < cosines[:, ids, None]
    ranks = reduce(below.double(), "token other vocab -> token other", "mean")
    rows = []
    for i, j in combinations(range(len(ids)), 2):
        rank = (ranks[i, j].item() + ranks[j, i].item()) / 2
        kind = "related" if rank > RELATED else "opposed" if rank < OPPOSED else "unrelated"
        rows.append({"token": model.vocab.show(ids[i]), "other": model.vocab.show(ids[j]),
                     "dot": dots[i, j].item(), "cosine": cosines[i, ids[j]].item(),
                     "rank": rank, "kind": kind})  # fmt: skip
    return pd.DataFrame(rows)


def _cosines(model: Model, token: int) -> Float[Tensor, " vocab"]:
    """Return the cosines of one token's embedding with all."""
    own = model.embedding[token].expand_as(model.embedding)
    return torch.cosine_similarity(model.embedding, own, dim=-1).cpu()


def find_neighbours(model: Model, text: str, *, top: int = 5) -> pd.DataFrame:
    """Table the tokens most like one, and those most opposed to it, by cosine of embeddings."""
    token = model.vocab.one(text)
    cosines = _cosines(model, token)
    order = torch.sort(cosines, descending=True, stable=True).indices.tolist()
    order.remove(token)
    chosen = [*order[:top], *reversed(order[-top:])]
    return pd.DataFrame(
        {
            "token": model.vocab.show(token),
            "kind": ["nearest"] * top + ["most opposed"] * top,
            "other": model.vocab.show_all(chosen),
            "cosine": cosines[chosen].tolist(),
        }
    )


def sweep_temperatures(
    trace: Trace, *, top: int = 6, temperatures: Sequence[float] = TEMPERATURES
) -> pd.DataFrame:
    """Table the `top` likeliest next tokens' probabilities and the entropy (in nats) at temperatures."""
    rows = []
    for temperature in temperatures:
        check_temperature(temperature)
        logs = torch.log_softmax(trace.logits[-1].double() / temperature, dim=-1)
        entropy = -(logs.exp() * logs).nansum().item()
        shown = trace.predictions(top, temperature=temperature)
        rows += [
            {"temperature": temperature, "token": token, "probability": probability,
             "entropy": entropy}
            for token, probability in zip(shown["token"], shown["probability"], strict=True)
        ]  # fmt: skip
    return pd.DataFrame(rows)

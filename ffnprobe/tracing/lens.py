"""The lens: what the stream would say after each attention and MLP, were it read there.

    logit_t after a stage = x̂ · u_t + d_t, x̂ the final LayerNorm recomputed on the stream there

How far a stage moved the stream toward the answer: its change along the answer's direction,
Δx · u / |u|, with u the answer's unembedding centred over the vocabulary, so that what raises every
token alike is no move. `cosine` is between the stream (less its mean) and u.

Limits: only the last row is the model's own reading; earlier layers do not write for the last one's
eyes, and a token that ranks low there may be held in another form.

>>> import ffnprobe as fp
>>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
>>> lens = trace.lens(" basketball")
>>> lens.table.part.tolist()[:4]
['embedding', 'attention', 'MLP', 'attention']
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor

from ffnprobe.cards import card, table_html
from ffnprobe.errors import OptionRefused
from ffnprobe.models.arithmetic import cap, normalise, write_heads
from ffnprobe.models.model import Model
from ffnprobe.models.provenance import Provenance
from ffnprobe.tracing.answers import one_token, predicted
from ffnprobe.tracing.predictions import rank_of
from ffnprobe.tracing.trace import Trace

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Lens:
    """The answer's logit, probability and rank, and the likeliest token, stage by stage."""

    table: "pd.DataFrame"
    provenance: Provenance

    def _repr_html_(self) -> str:
        title = f"lens on {self.provenance.answer} at position {self.provenance.position}"
        return card(title, table_html(self.table), note="only the last row is the model's own")

    def tables(self) -> "dict[str, pd.DataFrame]":
        """Name the table a file of this lens holds."""
        return {"lens": self.table}


@torch.no_grad()
def read_stream(trace: Trace, answer: str | int | None = None, *, position: int = -1) -> Lens:
    """Read the stream at a position after each stage; without an answer, the model's own."""
    import pandas as pd

    model, place = trace.model, trace.at(position)
    chosen = predicted(trace, place) if answer is None else answer
    token = one_token(model, chosen, use="the lens")
    stream = _stages(trace, place).to(model.device)
    seen = normalise(model, stream)
    logits = _read(trace, seen)
    probabilities = torch.softmax(logits.double(), dim=-1)
    likeliest = logits.argmax(-1).tolist()
    toward = model.unembedding[token] - model.mean_unembedding
    toward = toward / toward.norm()
    along = einsum(stream, toward, "stage d_model, d_model -> stage")
    cosine = einsum(seen, toward, "stage d_model, d_model -> stage") / seen.norm(dim=-1)
    layers = range(model.config.layers)
    # Before the first stage there is nothing to have moved from.
    moved = [float("nan"), *along.diff().tolist()]
    table = pd.DataFrame(
        {
            "layer": pd.array([None, *(n for n in layers for _ in range(2))], dtype="Int64"),
            "part": ["embedding", *["attention", "MLP"] * len(layers)],
            "token": model.vocab.show_all(likeliest),
            "token_probability": probabilities.amax(-1).tolist(),
            "logit": logits[:, token].tolist(),
            "probability": probabilities[:, token].tolist(),
            "rank": rank_of(logits, token).tolist(),
            "moved": moved,
            "cosine": cosine.tolist(),
        }
    )
    provenance = trace.provenance_at(place, answer=model.vocab.show(token))
    return Lens(provenance.note(table), provenance)


@torch.no_grad()
def read_logits(trace: Trace, after: str, *, position: int = -1) -> Float[Tensor, " vocab"]:
    """Read the stream at a position after the embedding or after a layer's MLP, as if it were the last."""
    stages = name_stages(trace.model)
    if after not in stages:
        raise OptionRefused(
            f'the stream is not read after "{after}".', remedy=f"{stages[0]}, L0–{stages[-1]}"
        )
    # Between the embedding and the end every layer has two stages: attention, then MLP.
    stream = _stages(trace, trace.at(position))[2 * stages.index(after), None]
    seen = normalise(trace.model, stream.to(trace.model.device))
    return _read(trace, seen)[0].cpu()


def name_stages(model: Model) -> list[str]:
    """Name the places after which the stream can be read: the embedding, then every layer."""
    return ["embedding", *(f"L{layer}" for layer in range(model.config.layers))]


def _read(trace: Trace, seen: Float[Tensor, "stage d_model"]) -> Float[Tensor, "stage vocab"]:
    """Turn normalised streams into logits."""
    model, pattern = trace.model, "stage d_model, vocab d_model -> stage vocab"
    return cap(model, einsum(seen, model.unembedding, pattern) + model.unembedding_bias)


def _stages(trace: Trace, position: int) -> Float[Tensor, "stage d_model"]:
    """Line up the stream at a position: the embedding, then after each attention and MLP."""
    before, after = trace.before_attention[:, position], trace.before_mlp[:, position]
    if trace.model.config.is_parallel:  # what the MLP reads has not been through attention
        device, layers = trace.model.device, range(len(before))
        mixes = trace.mixes[:, position].to(device)
        written = [write_heads(trace.model, layer, mixes[layer]).cpu() for layer in layers]
        after = before + torch.stack(written)
    both = torch.stack([before, after])
    inside = rearrange(both, "part layer d_model -> (layer part) d_model")
    return torch.cat([inside, trace.final[position, None]])

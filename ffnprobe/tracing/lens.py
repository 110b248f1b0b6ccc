"""The logit lens: what the model would predict if it ended after each attention or MLP.

    logit_t after a stage = x̂ · u_t + d_t, x̂ the final LayerNorm recomputed on the stream there

How far a stage moved the stream toward the answer: its change along the answer's direction,
Δx · u / |u|, with u the answer's unembedding centred over the vocabulary, so that raising every
token equally is not a move. `cosine` is between the stream (minus its mean) and u.

Limits: only the last row is the model's own prediction. Earlier layers do not write for the
unembedding, so a token that ranks low there may be present in another form.
"""

from dataclasses import dataclass

import pandas as pd
import torch
from einops import einsum

from ffnprobe.arguments import Answer, Position, verb
from ffnprobe.models.step import normalise, unembed
from ffnprobe.provenance import Provenance
from ffnprobe.results import Result
from ffnprobe.tracing.trace import Trace, line_up, one_token, predicted, rank_of


@dataclass(frozen=True, eq=False, repr=False)
class Lens(Result):
    """The answer's logit, probability and rank, and the likeliest token, stage by stage.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> fp.lens(trace, " basketball").table.part.tolist()[:4]
    ['embedding', 'attention', 'MLP', 'attention']
    """

    table: pd.DataFrame
    provenance: Provenance

    @property
    def title(self) -> str:
        """Say which answer is looked for, and where."""
        return f"lens on {self.provenance.answer} at position {self.provenance.position}"

    @property
    def caption(self) -> str:
        """How to read the table."""
        return "only the last row is the model's own reading"

    def tables(self) -> dict[str, pd.DataFrame]:
        """Name the table a file of this lens holds."""
        return {"lens": self.table}


@verb
@torch.no_grad()
def lens(trace: Trace, answer: Answer = None, *, position: Position = -1) -> Lens:
    """Read the stream after each attention and MLP as if it were the last (logit lens).

    Without an answer, the model's own prediction is looked for.

    >>> import ffnprobe as fp
    >>> trace = fp.run(fp.load("pocket"), "Michael Jordan plays the sport of")
    >>> fp.lens(trace).table.token.iloc[-1]
    '␣basketball'
    """
    model, index = trace.model, trace.at(position)
    answer = predicted(trace, index) if answer is None else answer
    token = one_token(model, answer, use="the lens")
    stream = line_up(trace, index).to(model.device)
    seen = normalise(model, stream)
    logits = unembed(model, seen)
    probabilities = torch.softmax(logits.double(), dim=-1)
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
            "token": model.vocab.show_all(logits.argmax(-1).tolist()),
            "token_probability": probabilities.amax(-1).tolist(),
            "logit": logits[:, token].tolist(),
            "probability": probabilities[:, token].tolist(),
            "rank": rank_of(logits, token).tolist(),
            "moved": moved,
            "cosine": cosine.tolist(),
        }
    )
    provenance = trace.provenance_at(index, answer=model.vocab.show(token))
    return Lens(provenance.note(table), provenance)

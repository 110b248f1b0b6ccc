"""Project directions of the residual stream onto tokens.

Four conventions circulate for an answer w, and ranks differ between them:

    centred   w · u_t − mean over tokens (u_t: gain folded, centred over d_model); ours, the default
    gain      (γ_f ⊙ w) · W_U[:, t]
    raw       w · W_U[:, t]
    normed    LN_f(w) · W_U[:, t], with the final LayerNorm's gain and shift, as if w were the stream

A question q is projected on the token embeddings (`through="embed"`: q · W_E[t]) or on the folded
unembedding (`through="unembed"`: q · u_t). True to the letter only at layer 0: later layers read
what earlier layers wrote, not the bare embedding.

Where the final norm is an RMSNorm nothing is centred over d_model and there is no shift.

The gain is folded into the direction, not into the unembedding: w · u_t = (γ_f ⊙ (w − mean w)) ·
W_U[:, t], one row to fold instead of one for each token. A direction so prepared is a *reader*.
"""

from collections.abc import Iterator

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from ffnprobe.errors import OptionRefused
from ffnprobe.models.model import Model
from ffnprobe.models.step import normalise

CONVENTIONS = ("centred", "gain", "raw", "normed")
THROUGH = ("embed", "unembed")
ROWS_AT_ONCE = 256


def answer_readers(
    model: Model, answers: Float[Tensor, "row d_model"], *, convention: str
) -> tuple[Float[Tensor, "row d_model"], Float[Tensor, "vocab d_model"]]:
    """Return the two matrices whose product is the projection (before centring over tokens)."""
    check_convention(convention)
    if convention == "raw":
        return answers, model.head
    if convention == "gain":
        return answers * model.final_gain, model.head
    if convention == "centred":
        return model.centre(answers) * model.final_gain, model.head
    normed = normalise(model, answers) * model.final_gain
    shift = model.final_shift
    return normed if shift is None else normed + shift, model.head


def question_readers(
    model: Model, questions: Float[Tensor, "row d_model"], *, through: str
) -> tuple[Float[Tensor, "row d_model"], Float[Tensor, "vocab d_model"]]:
    """Return the two matrices whose product is the projection of questions."""
    check_through(through)
    if through == "embed":
        return questions, model.embedding
    return model.centre(questions) * model.final_gain, model.head


def project_blocks(
    readers: Float[Tensor, "row d_model"], tokens: Float[Tensor, "vocab d_model"]
) -> Iterator[tuple[slice, Float[Tensor, "block vocab"]]]:
    """Yield the product a few rows at a time, in one buffer that every step overwrites."""
    columns = rearrange(tokens, "vocab d_model -> d_model vocab")
    size = max(1, min(ROWS_AT_ONCE, len(readers)))
    buffer = torch.empty(size, len(tokens), device=tokens.device)
    for start in range(0, len(readers), size):
        rows = slice(start, min(start + size, len(readers)))
        yield rows, torch.matmul(readers[rows], columns, out=buffer[: rows.stop - start])


def check_convention(convention: str) -> None:
    """Refuse a convention that is not one of the four."""
    if convention not in CONVENTIONS:
        raise OptionRefused(
            f'"{convention}" is not a convention of projection.', remedy=", ".join(CONVENTIONS)
        )


def check_through(through: str) -> None:
    """Refuse a matrix that questions are not projected on."""
    if through not in THROUGH:
        raise OptionRefused(
            f'a question is not projected through "{through}".', remedy=", ".join(THROUGH)
        )

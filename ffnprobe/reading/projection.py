"""Project directions of the residual stream onto tokens.

Four conventions circulate for an answer w, and ranks differ between them:

    centred   w · u_t − mean over tokens (u_t: gain folded, centred over d_model); ours, the default
    gain      (γ_f ⊙ w) · W_U[:, t]
    raw       w · W_U[:, t]
    normed    LN_f(w) · W_U[:, t], with the final LayerNorm's gain and shift, as if w were the stream

A question q is projected on the token embeddings (`through="embed"`: q · W_E[t]) or on the folded
unembedding (`through="unembed"`: q · u_t). True to the letter only at layer 0: later layers read
what earlier layers wrote, not the bare embedding.
"""

from einops import einsum, reduce
from jaxtyping import Float
from torch import Tensor

from ffnprobe.errors import OptionRefused
from ffnprobe.models.model import Model

CONVENTIONS = ("centred", "gain", "raw", "normed")
THROUGH = ("embed", "unembed")


def project_answers(
    model: Model, answers: Float[Tensor, "row d_model"], *, convention: str = "centred"
) -> Float[Tensor, "row vocab"]:
    """Project answer directions onto every token, in logits per unit of activation and scale."""
    readers, tokens = answer_readers(model, answers, convention=convention)
    values = einsum(readers, tokens, "row d_model, vocab d_model -> row vocab")
    if convention == "centred":
        values -= einsum(readers, model.mean_unembedding, "row d_model, d_model -> row")[:, None]
    return values


def answer_readers(
    model: Model, answers: Float[Tensor, "row d_model"], *, convention: str
) -> tuple[Float[Tensor, "row d_model"], Float[Tensor, "vocab d_model"]]:
    """Return the two matrices whose product is the projection (before centring over tokens)."""
    match convention:
        case "centred":
            return answers, model.unembedding
        case "gain":
            return answers * model.final_gain, model.head
        case "raw":
            return answers, model.head
        case "normed":
            centred = answers - reduce(answers, "row d_model -> row 1", "mean")
            variance = reduce(centred.square(), "row d_model -> row 1", "mean")
            normed = centred / (variance + model.config.eps).sqrt()
            return normed * model.final_gain + model.final_shift, model.head
    raise OptionRefused(
        f'"{convention}" is no convention of projection.', remedy=", ".join(CONVENTIONS)
    )


def question_tokens_matrix(model: Model, *, through: str) -> Float[Tensor, "vocab d_model"]:
    """Return the token directions a question is projected on."""
    if through not in THROUGH:
        raise OptionRefused(
            f'a question is not projected through "{through}".', remedy=", ".join(THROUGH)
        )
    return model.embedding if through == "embed" else model.unembedding


def project_questions(
    model: Model, questions: Float[Tensor, "row d_model"], *, through: str = "embed"
) -> Float[Tensor, "row vocab"]:
    """Project questions onto every token."""
    tokens = question_tokens_matrix(model, through=through)
    return einsum(questions, tokens, "row d_model, vocab d_model -> row vocab")

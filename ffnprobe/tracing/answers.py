"""Turn what a user calls an answer into token ids, never repaired."""

from typing import TYPE_CHECKING

from ffnprobe.errors import TokenNotFound
from ffnprobe.models.model import Model

if TYPE_CHECKING:
    from ffnprobe.tracing.trace import Trace


def answer_ids(model: Model, answer: str | int) -> tuple[int, ...]:
    """Return the token ids of an answer: all pieces of a text, or the id given."""
    if isinstance(answer, str) and answer:
        return tuple(model.vocab.pieces(answer))
    return (one_token(model, answer, use="an answer"),)


def one_token(model: Model, token: str | int, *, use: str) -> int:
    """Return the id of a text that is one token, or an id if the vocabulary has it."""
    if isinstance(token, str):
        return model.vocab.one(token, use=use)
    if not 0 <= token < model.config.vocab:
        raise TokenNotFound(
            f"token id {token} does not exist: {model.name} has 0–{model.config.vocab - 1}."
        )
    return int(token)


def predicted(trace: "Trace", position: int = -1) -> int:
    """Return the id of the token the model says next; of equals, the first."""
    logits = trace.logits[trace.at(position)]
    return int((logits == logits.max()).nonzero()[0])

"""Turn what a user calls an answer into token ids, never repaired."""

from typing import TYPE_CHECKING

from ffnprobe.errors import TokenNotFound
from ffnprobe.models.model import Model
from ffnprobe.models.vocab import Vocab

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


def describe_spelling(vocab: Vocab, answer: str) -> list[str]:
    """Say how an answer is split into tokens, and that the leading space may be missing."""
    said, pieces = [], vocab.pieces(answer)
    if len(pieces) > 1:
        shown = " ".join(f'"{piece}"' for piece in vocab.show_all(pieces))
        said.append(f'"{answer}" is {len(pieces)} tokens: {shown}; each is predicted in turn')
    if not answer.startswith(" ") and len(vocab.pieces(" " + answer)) == 1:
        said.append(f'with a leading space, " {answer}" is one token, a different one')
    return said

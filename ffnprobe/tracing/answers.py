"""Turn what a user calls an answer into token ids, never repaired, and run a prompt on with them."""

from collections.abc import Sequence

from ffnprobe.errors import PromptRefused, TokenNotFound
from ffnprobe.models.model import Model
from ffnprobe.tracing.trace import Trace, run


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


def predicted(trace: Trace, position: int = -1) -> int:
    """Return the id of the token the model says next; of equals, the first."""
    return int(trace.predictions(1, position=position).id.item())


def extend(trace: Trace, position: int, tokens: Sequence[int]) -> Trace:
    """Run the prompt up to a position again, with tokens behind it."""
    model, ids = trace.model, [*trace.ids[: position + 1], *tokens]
    if len(ids) > model.config.positions:
        raise PromptRefused(
            f"the prompt is {position + 1} tokens and the answer {len(tokens) + 1}; {model.name} "
            f"has {model.config.positions} positions.",
            remedy="a shorter prompt, or an answer of one token",
        )
    return run(model, ids[1:] if trace.has_bos else ids, bos=trace.has_bos, patterns=False)

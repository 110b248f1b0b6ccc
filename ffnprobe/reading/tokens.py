"""The tokens that stand for a neuron: what opens its question, what its answer promotes.

Equal values are ordered by token id, so that a list is the same on every run.
"""

from collections.abc import Sequence

import torch
from einops import reduce
from jaxtyping import Float
from torch import Tensor

from ffnprobe.models.model import Model
from ffnprobe.names import NeuronId
from ffnprobe.reading.ordering import check_top, top_tokens
from ffnprobe.reading.projection import answer_readers, project_blocks, question_readers

# A token in its shown form, its id, and its value.
TokenValue = tuple[str, int, float]


def question_tokens(
    model: Model, neurons: Sequence[NeuronId], k: int, *, through: str = "embed"
) -> list[list[str]]:
    """List, for each neuron, the k tokens that open its question most, in their shown form."""
    questions = gather(model.questions, neurons)
    return only_tokens(list_tokens(model, *question_readers(model, questions, through=through), k))


def gate_tokens(model: Model, neurons: Sequence[NeuronId], k: int) -> list[list[str]] | None:
    """List, for each neuron, the k tokens that open its gate most; None where there are no gates."""
    if model.gates is None:
        return None
    readers = question_readers(model, gather(model.gates, neurons), through="embed")
    return only_tokens(list_tokens(model, *readers, k))


def answer_tokens(
    model: Model,
    neurons: Sequence[NeuronId],
    k: int,
    *,
    signs: Sequence[float] | None = None,
    convention: str = "centred",
) -> list[list[str]]:
    """List, for each neuron, the k tokens its answer promotes; negated where its sign is negative."""
    answers = gather(model.answers, neurons)
    readers, tokens = answer_readers(model, answers, convention=convention)
    if signs is not None:
        signed = torch.tensor([-1.0 if sign < 0 else 1.0 for sign in signs], device=readers.device)
        readers = readers * signed[:, None]
    return only_tokens(list_tokens(model, readers, tokens, k))


def list_sides(
    model: Model,
    questions: Float[Tensor, "row d_model"],
    gates: Float[Tensor, "row d_model"] | None,
    answers: Float[Tensor, "row d_model"],
    k: int,
    *,
    convention: str,
    through: str,
) -> dict[str, list[list[TokenValue]]]:
    """List what opens each gate and question, and what each answer `promotes` and `suppresses`."""
    lists: dict[str, list[list[TokenValue]]] = {}
    if gates is not None:
        opened = question_readers(model, gates, through=through)
        lists["gate_tokens"] = list_tokens(model, *opened, k)
    asked = question_readers(model, questions, through=through)
    lists |= {"question_tokens": list_tokens(model, *asked, k), "promotes": [], "suppresses": []}
    answered = answer_readers(model, answers, convention=convention)
    is_centred = convention == "centred"
    for _, values in project_blocks(*answered):
        for side in ("promotes", "suppresses"):
            is_low = side == "suppresses"
            lists[side] += list_values(model, values, k, smallest=is_low, is_centred=is_centred)
    return lists


def list_tokens(
    model: Model,
    readers: Float[Tensor, "row d_model"],
    tokens: Float[Tensor, "vocab d_model"],
    k: int,
    *,
    smallest: bool = False,
    is_centred: bool = False,
) -> list[list[TokenValue]]:
    """List the k tokens that each reader has the largest (or smallest) product with."""
    lists: list[list[TokenValue]] = []
    for _, values in project_blocks(readers, tokens):
        lists += list_values(model, values, k, smallest=smallest, is_centred=is_centred)
    return lists


def list_values(
    model: Model,
    values: Float[Tensor, "row vocab"],
    k: int,
    *,
    smallest: bool = False,
    is_centred: bool = False,
) -> list[list[TokenValue]]:
    """List each row's k tokens of largest (or smallest) value; if centred, less the row's mean."""
    check_top(k, model.config.vocab, of="tokens")
    found, ids = top_tokens(values, k, smallest=smallest)
    if is_centred:
        found = found - reduce(values, "row vocab -> row 1", "mean")
    return [
        list(zip(model.vocab.show_all(row), row, row_values, strict=True))
        for row, row_values in zip(ids.tolist(), found.tolist(), strict=True)
    ]


def only_tokens(lists: Sequence[Sequence[TokenValue]]) -> list[list[str]]:
    """Leave out ids and values."""
    return [[token for token, _, _ in row] for row in lists]


def gather(
    rows: Float[Tensor, "layer neuron d_model"], neurons: Sequence[NeuronId]
) -> Float[Tensor, "row d_model"]:
    """Pick the rows of the neurons named."""
    return rows[[name.layer for name in neurons], [name.neuron for name in neurons]]

"""The tokens that stand for a neuron: what opens its question, what its answer promotes.

Equal values are ordered by token id, so that a list is the same on every run.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ffnprobe.models.model import Model
from ffnprobe.names import NeuronId
from ffnprobe.reading.projection import project_answers, project_questions

ROWS_AT_ONCE = 256


def top_tokens(
    values: Float[Tensor, "row vocab"], k: int, *, smallest: bool = False
) -> tuple[Float[Tensor, "row k"], Int[Tensor, "row k"]]:
    """Find each row's k largest (or smallest) values and their token ids, ties by token id."""
    found = torch.sort(values, dim=-1, descending=not smallest, stable=True)
    return found.values[:, :k], found.indices[:, :k]


def question_tokens(
    model: Model, neurons: Sequence[NeuronId], k: int, *, through: str = "embed"
) -> list[list[str]]:
    """List, for each neuron, the k tokens that open its question most, in their shown form."""
    return _listed(
        model,
        neurons,
        lambda chosen: project_questions(model, gather(model.questions, chosen), through=through),
        k,
    )


def answer_tokens(
    model: Model,
    neurons: Sequence[NeuronId],
    k: int,
    *,
    signs: Sequence[float] | None = None,
    convention: str = "centred",
) -> list[list[str]]:
    """List, for each neuron, the k tokens its answer promotes; turned round where its sign is negative."""
    turned = dict(zip(neurons, [1.0] * len(neurons) if signs is None else signs, strict=True))

    def project(chosen: Sequence[NeuronId]) -> Tensor:
        sign = torch.tensor([-1.0 if turned[n] < 0 else 1.0 for n in chosen], device=model.device)
        values = project_answers(model, gather(model.answers, chosen), convention=convention)
        return values * sign[:, None]

    return _listed(model, neurons, project, k)


def gather(
    rows: Float[Tensor, "layer neuron d_model"], neurons: Sequence[NeuronId]
) -> Float[Tensor, "row d_model"]:
    """Pick the rows of the neurons named."""
    return rows[[name.layer for name in neurons], [name.neuron for name in neurons]]


def _listed(
    model: Model,
    neurons: Sequence[NeuronId],
    project: Callable[[Sequence[NeuronId]], Tensor],
    k: int,
) -> list[list[str]]:
    lists: list[list[str]] = []
    for start in range(0, len(neurons), ROWS_AT_ONCE):
        _, ids = top_tokens(project(neurons[start : start + ROWS_AT_ONCE]), k)
        lists += [model.vocab.show_all(row) for row in ids.tolist()]
    return lists

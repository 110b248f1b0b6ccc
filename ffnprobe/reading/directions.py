"""The questions and answers of chosen neurons, folded for these alone.

`Model.questions` folds every neuron; to read one neuron, or one layer after another, that is
more time and memory than the task needs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from jaxtyping import Float
from torch import Tensor, linalg

from ffnprobe.errors import OptionRefused
from ffnprobe.models.model import Model
from ffnprobe.names import NeuronId


@dataclass(frozen=True, eq=False)
class Directions:
    """The directions of neurons of one layer, a row each."""

    layer: int
    neurons: tuple[int, ...]
    questions: Float[Tensor, "row d_model"]
    question_biases: Float[Tensor, " row"]
    # None where neurons have no gates.
    gates: Float[Tensor, "row d_model"] | None
    gate_biases: Float[Tensor, " row"] | None
    answers: Float[Tensor, "row d_model"]
    # Of every neuron of the layer: how long an answer usually is there.
    median_answer_norm: float

    @property
    def names(self) -> list[str]:
        """The neurons' names."""
        return [str(NeuronId(self.layer, neuron)) for neuron in self.neurons]


def pick_directions(model: Model, layer: int, neurons: Sequence[int]) -> Directions:
    """Fold the questions of a layer's neurons and pick their answers."""
    questions, biases = pick_questions(model, layer, neurons)
    gates, gate_biases = (
        pick_gates(model, layer, neurons) if model.config.is_gated else (None, None)
    )
    answers = pick_answers(model, layer)
    median = float(linalg.vector_norm(answers, dim=-1).median())
    return Directions(
        layer, tuple(neurons), questions, biases, gates, gate_biases, answers[list(neurons)], median
    )


def pick_questions(
    model: Model, layer: int, neurons: Sequence[int] | None = None
) -> tuple[Float[Tensor, "row d_model"], Float[Tensor, " row"]]:
    """Fold the questions, and their biases, of some of a layer's neurons, or of all."""
    chosen = slice(None) if neurons is None else list(neurons)
    return model.fold(layer, model.layout.mlp_norm, model.layout.up, chosen)


def pick_gates(
    model: Model, layer: int, neurons: Sequence[int] | None = None
) -> tuple[Float[Tensor, "row d_model"], Float[Tensor, " row"]]:
    """Fold the gates, and their biases, of some of a layer's neurons, or of all."""
    if model.layout.gate is None:
        raise OptionRefused(
            f"the neurons of {model.name} have no gates.", remedy="by question (--by question)"
        )
    chosen = slice(None) if neurons is None else list(neurons)
    return model.fold(layer, model.layout.mlp_norm, model.layout.gate, chosen)


def pick_answers(model: Model, layer: int) -> Float[Tensor, "neuron d_model"]:
    """Return the answers of a layer's neurons as they are on disk, without a copy if in fp32."""
    return model.answers_of(layer)


def layer_runs(names: Sequence[NeuronId]) -> Iterator[tuple[int, list[int]]]:
    """Split neurons into runs of one layer, the order kept."""
    for layer, run in groupby(names, key=lambda name: name.layer):
        yield layer, [name.neuron for name in run]

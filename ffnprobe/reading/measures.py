"""The numbers of a neuron that its weights alone decide, and the table of them.

    question_norm, answer_norm   |q_n|, |w_n|
    question_bias                c_n, the score where x̂ is zero
    reads_writes                 cos(q_n, w_n): near −1 a neuron erases what it asks for
    role                         strengthens, translates or erases: a reading of that number
    vocab_mean … vocab_kurtosis  moments over tokens of cos(w_n, u_t)
    null_space                   share of the answer's norm the unembedding barely reads
    kind                         a label for these numbers
    gate_norm, gate_bias         |g_n| and the gate's score where x̂ is zero, where neurons have gates
    gate_cosine                  cos(g_n, q_n): near 1 a gate asks what the question asks
    gate_writes                  cos(g_n, w_n): near 1 the answer is what the gate asks for

Token columns of a table are text, tokens in their shown form with a space between: no shown token
holds a space, so `.str.split(" ")` gives the list back from every file format.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor, linalg

from ffnprobe.models.model import Model
from ffnprobe.reading.directions import Directions
from ffnprobe.reading.kinds import Shape, Thresholds, name_kind
from ffnprobe.reading.moments import Moments, measure_moments
from ffnprobe.reading.projection import answer_readers, project_blocks
from ffnprobe.reading.roles import name_role
from ffnprobe.reading.spectrum import token_directions

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class GateMeasures:
    """The numbers of a neuron's gate."""

    norm: float
    bias: float
    cosine: float
    writes: float


@dataclass(frozen=True)
class Measures:
    """The numbers of one neuron."""

    name: str
    layer: int
    neuron: int
    kind: str
    question_norm: float
    question_bias: float
    answer_norm: float
    reads_writes: float
    role: str
    moments: Moments
    null_space: float
    gate_measures: GateMeasures | None


def project_measured(
    model: Model, answers: Float[Tensor, "row d_model"]
) -> Iterator[tuple[Float[Tensor, "block vocab"], list[Moments]]]:
    """Yield the products of unit answers with the tokens u_t a block at a time, and their moments."""
    known = token_directions(model)
    norms = linalg.vector_norm(answers, dim=-1, keepdim=True)
    units = answers / torch.where(norms > 0, norms, 1.0)
    readers, tokens = answer_readers(model, units, convention="centred")
    means = readers @ known.mean_unit_row
    for rows, dots in project_blocks(readers, tokens):
        yield dots, measure_moments(dots, means[rows], known.unembedding_norms)


def measure_neurons(
    model: Model,
    directions: Directions,
    moments: Sequence[Moments],
    thresholds: Thresholds,
) -> list[Measures]:
    """Measure neurons of one layer whose moments are known."""
    question_norms = linalg.vector_norm(directions.questions, dim=-1)
    answer_norms = linalg.vector_norm(directions.answers, dim=-1)
    dots = einsum(directions.questions, directions.answers, "row d_model, row d_model -> row")
    spectrum = token_directions(model).unembedding
    columns = (
        question_norms, directions.question_biases, answer_norms,
        dots / (question_norms * answer_norms),
        spectrum.null_shares(directions.answers),
    )  # fmt: skip
    rows = zip(*(column.tolist() for column in columns), strict=True)
    depth = directions.layer / max(1, model.config.layers - 1)
    # Zero where most answers of a layer are nothing: then a norm is taken as it is.
    median = directions.median_answer_norm
    gates = _measure_gates(directions, question_norms)
    measured = []
    for name, neuron, shape, row, gate in zip(
        directions.names, directions.neurons, moments, rows, gates, strict=True
    ):
        question_norm, question_bias, answer_norm, reads_writes, null_space = row
        kind = name_kind(
            Shape(
                shape.variance, shape.skew, shape.kurtosis, null_space,
                answer_norm / (median or 1.0), depth, model.config.d_model,
                null_part=spectrum.weakest / model.config.d_model,
            ),
            thresholds,
        )  # fmt: skip
        measured.append(
            Measures(name, directions.layer, neuron, kind, question_norm, question_bias,
                     answer_norm, reads_writes, name_role(reads_writes, thresholds), shape, null_space, gate)
        )  # fmt: skip
    return measured


def _measure_gates(
    directions: Directions, question_norms: Float[Tensor, " row"]
) -> Sequence[GateMeasures | None]:
    """Measure the neurons' gates, if they have gates."""
    if directions.gates is None or directions.gate_biases is None:
        return [None] * len(directions.neurons)
    norms = linalg.vector_norm(directions.gates, dim=-1)
    dots = einsum(directions.gates, directions.questions, "row d_model, row d_model -> row")
    writes = einsum(directions.gates, directions.answers, "row d_model, row d_model -> row")
    answer_norms = linalg.vector_norm(directions.answers, dim=-1)
    columns = (
        norms, directions.gate_biases, dots / (norms * question_norms),
        writes / (norms * answer_norms),
    )  # fmt: skip
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [GateMeasures(*row) for row in rows]


def table_measures(
    measured: Sequence[Measures], lists: Mapping[str, Sequence[Sequence[str]]]
) -> "pd.DataFrame":
    """Table neurons, one row each, with the lists of tokens that stand for them."""
    import pandas as pd

    def column(name: str) -> list[object]:
        return [getattr(row, name) for row in measured]

    def moment(name: str) -> list[float]:
        return [getattr(row.moments, name) for row in measured]

    return pd.DataFrame(
        {name: column(name) for name in ("name", "layer", "neuron", "kind")}
        | {side: [" ".join(tokens) for tokens in rows] for side, rows in lists.items()}
        | {n: column(n) for n in ("question_norm", "question_bias", "answer_norm", "reads_writes", "role")}
        | {f"vocab_{name}": moment(name) for name in ("mean", "variance", "skew", "kurtosis")}
        | {"null_space": column("null_space")}
        | _gate_columns([row.gate_measures for row in measured])
    )  # fmt: skip


def _gate_columns(gates: Sequence[GateMeasures | None]) -> dict[str, list[float]]:
    """Name the columns of the gates; none where neurons have none."""
    known = [gate for gate in gates if gate is not None]
    names = ("norm", "bias", "cosine", "writes") if known else ()
    return {f"gate_{name}": [getattr(gate, name) for gate in known] for name in names}

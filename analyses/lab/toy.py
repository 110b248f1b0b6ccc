"""A toy FFN, small enough to follow by hand: rows in, linear, activation, linear, rows out.

    scores = x · up + up_bias;  activations = f(scores);  output = activations · down + down_bias

Rows of x are multiplied from the left, so a neuron's question is a column of `up` and its answer a
row of `down` (in `nn.Linear`'s layout: a row of W_up and a column of W_down). All in float64.

>>> ffn, rows = CASES["mixed"]
>>> [round(value, 12) for value in ffn.stages(rows).output[0].tolist()]
[-1.88, 2.02, 2.46]
"""

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor

from analyses.lab.activations import check_activation, find_curve, is_gated
from ffnprobe.errors import DataRefused, OptionRefused


@dataclass(frozen=True)
class ToyStages:
    """What each row is at each stage of a toy FFN; `gates` only if it has them."""

    input: Float[Tensor, "row d_model"]
    scores: Float[Tensor, "row neuron"]
    gates: Float[Tensor, "row neuron"] | None
    activations: Float[Tensor, "row neuron"]
    output: Float[Tensor, "row d_model"]

    def named(self) -> dict[str, Tensor]:
        """List the stages in order, by name."""
        known = {"input": self.input, "scores": self.scores, "gates": self.gates,
                 "activations": self.activations, "output": self.output}  # fmt: skip
        return {name: stage for name, stage in known.items() if stage is not None}

    def table(self) -> pd.DataFrame:
        """Table every stage of every row, one column a dimension."""
        return pd.DataFrame(
            [
                {"stage": name, "row": row, **{str(i): v for i, v in enumerate(values)}}
                for name, stage in self.named().items()
                for row, values in enumerate(stage.tolist())
            ]
        )


@dataclass(frozen=True, eq=False)
class ToyFFN:
    """Two matrices and an activation between them; SwiGLU's gate is `up` itself unless given."""

    up: Float[Tensor, "d_model neuron"]
    up_bias: Float[Tensor, " neuron"]
    down: Float[Tensor, "neuron d_model"]
    down_bias: Float[Tensor, " d_model"]
    activation: str = "relu"
    gate: Float[Tensor, "d_model neuron"] | None = None

    def __post_init__(self) -> None:
        check_activation(self.activation)
        _check_fit("up", self.up, "up_bias", self.up_bias, self.up.shape[1:])
        _check_fit("up", self.up, "down", self.down, (self.up.shape[1], self.down.shape[-1]))
        _check_fit("down", self.down, "down_bias", self.down_bias, self.down.shape[1:])
        if self.gate is not None:
            _check_fit("up", self.up, "gate", self.gate, self.up.shape)

    @property
    def questions(self) -> Float[Tensor, "neuron d_model"]:
        """What each neuron asks of a row."""
        return rearrange(self.up, "d_model neuron -> neuron d_model")

    @property
    def answers(self) -> Float[Tensor, "neuron d_model"]:
        """What each neuron adds to the output, per unit of activation."""
        return self.down

    def stages(self, rows: Float[Tensor, "row d_model"]) -> ToyStages:
        """Put rows through the FFN and keep every stage."""
        if rows.ndim != 2 or rows.shape[1] != self.up.shape[0]:
            raise OptionRefused(
                f"the input is {_size(rows)}; up is {_size(self.up)}.",
                remedy=f"an input with {self.up.shape[0]} columns",
            )
        scores = einsum(rows, self.up, "row d_model, d_model neuron -> row neuron") + self.up_bias
        curve = find_curve(self.activation)
        gates = None
        if is_gated(self.activation):
            gate = self.up if self.gate is None else self.gate
            gates = einsum(rows, gate, "row d_model, d_model neuron -> row neuron")
            activations = curve(gates) * scores
        else:
            activations = curve(scores)
        output = einsum(activations, self.down, "row neuron, neuron d_model -> row d_model")
        return ToyStages(rows, scores, gates, activations, output + self.down_bias)

    def table(self) -> pd.DataFrame:
        """Table each neuron: its question, its answer, and how alike the two are."""
        alike = torch.cosine_similarity(self.questions, self.answers, dim=-1)
        return pd.DataFrame(
            {
                "neuron": range(len(self.questions)),
                "question": [_vector(row) for row in self.questions],
                "question_bias": self.up_bias.tolist(),
                "answer": [_vector(row) for row in self.answers],
                "cosine": alike.tolist(),
            }
        )


def blend(ffn: ToyFFN, share: float) -> ToyFFN:
    """Interpolate from identity matrices to the FFN's own: (1 − share) I + share W."""
    return replace(
        ffn,
        up=torch.lerp(_identity(ffn.up), ffn.up, share),
        down=torch.lerp(_identity(ffn.down), ffn.down, share),
    )


def truncate(ffn: ToyFFN, rank: int) -> ToyFFN:
    """Let only the `rank` strongest singular directions of W − I differ from the identity."""

    def cut(weight: Tensor) -> Tensor:
        left, sizes, right = torch.linalg.svd(weight - _identity(weight))
        kept = torch.where(torch.arange(len(sizes)) < rank, sizes, 0.0)
        change = einsum(left, kept, right, "row rank, rank, rank column -> row column")
        return torch.add(_identity(weight), change)

    return replace(ffn, up=cut(ffn.up), down=cut(ffn.down))


def table_departure(ffn: ToyFFN, rows: Float[Tensor, "row d_model"]) -> pd.DataFrame:
    """Table how far each row's output lies from its input on two ways from identity to full weights.

    One way adds all of W − I little by little, the other one singular direction after another.
    """
    blends = {f"{share:.0%}": blend(ffn, share) for share in (0.0, 0.25, 0.5, 0.75, 1.0)}
    ranks = {f"rank {rank}": truncate(ffn, rank) for rank in range(ffn.up.shape[0] + 1)}
    return pd.DataFrame(
        {"way": way, "step": step, **{f"row {i}": d for i, d in enumerate(_distances(one, rows))}}
        for way, steps in {"by share": blends, "by rank": ranks}.items()
        for step, one in steps.items()
    )


def _distances(ffn: ToyFFN, rows: Tensor) -> list[float]:
    distances: list[float] = (ffn.stages(rows).output - rows).norm(dim=-1).tolist()
    return distances


def read_toy(path: Path, *, activation: str | None = None) -> tuple[ToyFFN, Tensor]:
    """Read an FFN and its input from JSON: input, up, up_bias, down, down_bias, gate, activation."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataRefused(f"{path} cannot be read as JSON: {error}.") from None
    names = ("input", "up", "up_bias", "down", "down_bias")
    missing = [name for name in names if not isinstance(values, dict) or name not in values]
    if missing:
        raise DataRefused(f"{path} lacks {', '.join(missing)}.", remedy=f"keys: {', '.join(names)}")
    matrices = {name: _numbers(values[name], f"{path}: {name}") for name in names}
    gate = None if values.get("gate") is None else _numbers(values["gate"], f"{path}: gate")
    rows = matrices.pop("input")
    named = activation or str(values.get("activation", "relu"))
    return ToyFFN(**matrices, activation=named, gate=gate), rows


def _numbers(value: Any, where: str) -> Tensor:
    refused = DataRefused(
        f"{where} is not a table of numbers.", remedy="[[1, -2, 0.5], [0, 1, 3]], rows as long"
    )
    if not _is_numbers(value):
        raise refused
    try:
        return torch.tensor(value, dtype=torch.float64)
    except ValueError:
        raise refused from None


def _is_numbers(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_numbers, value))
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _check_fit(
    name: str, first: Tensor, other_name: str, other: Tensor, wanted: tuple[int, ...]
) -> None:
    if first.ndim != 2 or tuple(other.shape) != tuple(wanted):
        raise OptionRefused(
            f"{other_name} is {_size(other)}; {name} is {_size(first)}.",
            remedy=f"{other_name} of {'×'.join(map(str, wanted))}",
        )


def _size(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "one number"


def _identity(weight: Tensor) -> Tensor:
    if weight.shape[0] != weight.shape[1]:
        raise OptionRefused(
            f"a matrix of {_size(weight)} has no identity.", remedy="use a square matrix"
        )
    return torch.eye(len(weight), dtype=weight.dtype)


def _vector(row: Tensor) -> str:
    return " ".join(f"{value:g}" for value in row.tolist())


def _case(
    up: list[list[float]], down: list[list[float]], rows: list[list[float]]
) -> tuple[ToyFFN, Tensor]:
    biases = [0.1, 0.0, -0.2], [-0.2, 0.1, 0.3]
    first, second, third = (torch.tensor(m, dtype=torch.float64) for m in (up, down, rows))
    up_bias, down_bias = (torch.tensor(bias, dtype=torch.float64) for bias in biases)
    return ToyFFN(first, up_bias, second, down_bias), third


_EYE = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
CASES: dict[str, tuple[ToyFFN, Tensor]] = {
    "mixed": _case(
        [[0.5, -1.0, 1.2], [0.3, 0.7, -0.6], [-0.2, 0.9, 0.4]],
        [[1.1, -0.3, 0.5], [0.2, 0.4, -1.0], [-0.7, 0.8, 0.9]],
        [[1.0, -2.0, 0.5], [-0.5, 1.2, 0.0]],
    ),
    "identity": _case(_EYE, _EYE, [[1.0, 0.0, 1.5], [0.0, 1.0, 0.0]]),
}

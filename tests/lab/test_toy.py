"""Toy FFNs: the two cases to the digit, rows alone, own weights, words for what does not fit."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from analyses.lab.toy import CASES, ToyFFN, blend, read_toy, table_departure, truncate
from ffnprobe.errors import DataRefused, OptionRefused

STAGES = {
    "mixed": {
        "scores": [[-0.1, -1.95, 2.4], [0.21, 1.34, -1.52]],
        "activations": [[0, 0, 2.4], [0.21, 1.34, 0]],
        "output": [[-1.88, 2.02, 2.46], [0.299, 0.573, -0.935]],
    },
    "identity": {
        "scores": [[1.1, 0, 1.3], [0.1, 1, -0.2]],
        "activations": [[1.1, 0, 1.3], [0.1, 1, 0]],
        "output": [[0.9, 0.1, 1.6], [-0.1, 1.1, 0.3]],
    },
}


@pytest.fixture
def uneven() -> ToyFFN:
    """Every axis a different length, so that no transpose hides."""
    draw = torch.Generator().manual_seed(0)
    shapes = (4, 5), (5,), (5, 4), (4,)
    return ToyFFN(*(torch.randn(s, generator=draw, dtype=torch.float64) for s in shapes))


@pytest.mark.parametrize("case", STAGES)
def test_cases_are_exact_to_the_digit(case):
    ffn, rows = CASES[case]
    named = ffn.stages(rows).named()
    for stage, wanted in STAGES[case].items():
        assert named[stage].dtype == torch.float64
        assert [[round(v, 12) for v in row] for row in named[stage].tolist()] == wanted


def test_rows_do_not_see_each_other():
    ffn, rows = CASES["mixed"]
    changed = rows.clone()
    changed[0] = torch.tensor([7.0, -3.0, 0.1])
    before, after = ffn.stages(rows).named(), ffn.stages(changed).named()
    for stage in before:
        assert torch.equal(before[stage][1], after[stage][1])
        assert not torch.equal(before[stage][0], after[stage][0])


@pytest.mark.parametrize(
    ("name", "module"),
    [("relu", nn.ReLU()), ("gelu", nn.GELU()), ("gelu_new", nn.GELU("tanh")), ("swish", nn.SiLU())],
)
def test_an_ffn_is_torchs_linear_activation_linear(uneven, name, module):
    rows = torch.linspace(-2, 2, 12, dtype=torch.float64).reshape(3, 4)
    up, down = nn.Linear(4, 5).double(), nn.Linear(5, 4).double()
    # In nn.Linear's layout questions are rows of the first matrix, answers columns of the second.
    up.weight.data, up.bias.data = uneven.questions, uneven.up_bias
    down.weight.data, down.bias.data = uneven.answers.mT, uneven.down_bias
    expected = down(module(up(rows)))
    output = replace(uneven, activation=name).stages(rows).output
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)


def test_swiglu_multiplies_scores_by_their_gates(uneven):
    rows = torch.randn(3, 4, dtype=torch.float64)
    gated = replace(uneven, activation="swiglu", gate=uneven.up.flip(0))
    stages = gated.stages(rows)
    gates = rows @ uneven.up.flip(0)
    torch.testing.assert_close(stages.gates, gates)
    opened = gates / (1 + torch.exp(-gates))
    torch.testing.assert_close(stages.activations, opened * stages.scores)


def test_both_ways_lead_from_identity_to_the_weights():
    ffn, rows = CASES["mixed"]
    identity = torch.eye(3, dtype=torch.float64)
    for start in (blend(ffn, 0.0), truncate(ffn, 0)):
        torch.testing.assert_close(start.up, identity)
    for end in (blend(ffn, 1.0), truncate(ffn, 3)):
        torch.testing.assert_close(end.stages(rows).output, ffn.stages(rows).output)
    assert torch.linalg.matrix_rank(truncate(ffn, 1).up - identity) == 1
    table = table_departure(ffn, rows)
    moved = (ffn.stages(rows).output - rows).norm(dim=-1)
    ends = table.groupby("way").last()[["row 0", "row 1"]]
    assert ends.to_numpy() == pytest.approx(torch.stack([moved, moved]).numpy())


def test_neurons_are_read_as_questions_and_answers(uneven):
    table = uneven.table()
    assert table.columns.tolist() == ["neuron", "question", "question_bias", "answer", "cosine"]
    assert len(table) == 5
    assert table.question[2] == " ".join(f"{v:g}" for v in uneven.up[:, 2].tolist())
    assert table.answer[2] == " ".join(f"{v:g}" for v in uneven.down[2].tolist())


def write(folder: Path, **changes: object) -> Path:
    values = {"input": [[1, 2]], "up": [[1, 0, 2], [0, 1, -1]], "up_bias": [0, 0, 0.5],
              "down": [[1, 0], [0, 1], [1, 1]], "down_bias": [0, 0]} | changes  # fmt: skip
    path = folder / "mine.json"
    path.write_text(json.dumps({k: v for k, v in values.items() if v is not None}))
    return path


def test_own_weights_are_read_from_json(tmp_path):
    ffn, rows = read_toy(write(tmp_path, activation="swish"))
    assert ffn.activation == "swish"
    assert ffn.stages(rows).scores.tolist() == [[1.0, 2.0, 0.5]]


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"up": [[1, "two", 3]]}, DataRefused, "up is not a table of numbers"),
        ({"up": [[1, True, 3], [0, 0, 0]]}, DataRefused, "up is not a table of numbers"),
        ({"up": [[1, 2, 3], [4]]}, DataRefused, "up is not a table of numbers"),
        ({"down_bias": [float("nan"), 0]}, DataRefused, "down_bias is not a table"),
        ({"down": None}, DataRefused, "lacks down"),
        ({"up_bias": [0, 0]}, OptionRefused, r"up_bias is 2; up is 2×3"),
        ({"down": [[1, 0], [0, 1]]}, OptionRefused, r"down is 2×2; up is 2×3"),
        ({"gate": [[1, 0]]}, OptionRefused, r"gate is 1×2; up is 2×3"),
        ({"activation": "sigmoid"}, OptionRefused, '"sigmoid" is not an activation.*\n.*swiglu'),
    ],
)
def test_what_does_not_fit_is_said_with_both_shapes(tmp_path, changes, error, words):
    with pytest.raises(error, match=words):
        read_toy(write(tmp_path, **changes))


def test_an_input_that_does_not_fit_names_both_shapes(uneven):
    with pytest.raises(OptionRefused, match="the input is 3×3; up is 4×5"):
        uneven.stages(torch.zeros(3, 3))
    with pytest.raises(OptionRefused, match="4×5 has no identity"):
        blend(uneven, 0.5)


def test_a_file_that_is_not_json_is_refused(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text("{")
    with pytest.raises(DataRefused, match=r"mine.json cannot be read as JSON"):
        read_toy(path)

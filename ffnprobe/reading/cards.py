"""A neuron's card: its token lists side by side, its numbers below, as text."""

from collections.abc import Mapping, Sequence

from rich.cells import cell_len

from ffnprobe.documents.blocks import Table
from ffnprobe.layout import UNLIMITED, wrap
from ffnprobe.reading.measures import Measures
from ffnprobe.reading.tokens import TokenValue

Lists = Mapping[str, Sequence[TokenValue]]
ABOUT = (
    "A neuron asks a question about the text so far. The better the text matches it, the more of its answer it "
    "adds, which makes some next tokens likelier and others less likely."
)
TITLES = {
    "gate_tokens": "gate opens on",
    "question_tokens": "question opens on",
    "promotes": "answer promotes",
    "suppresses": "answer suppresses",
}


def card_text(measures: Measures, lists: Lists, *, width: int = UNLIMITED) -> str:
    """Write a card that pastes as text: aligned columns, no colour, as many lists in a row as fit."""
    columns = [
        [TITLES[side], *(f"{_pad(token, _width(row))}  {value:9.4f}" for token, _, value in row)]
        for side, row in lists.items()
    ]
    blocks = [columns[:1]]
    for column in columns[1:]:
        if sum(map(_breadth, [*blocks[-1], column])) + 3 * len(blocks[-1]) > width:
            blocks.append([])
        blocks[-1].append(column)
    numbers = [line for text in describe(measures) for line in wrap(text, width)]
    return "\n".join(
        [f"{measures.name}  {measures.kind}", "", *(_side_by_side(b) for b in blocks), *numbers]
    )


def _side_by_side(columns: Sequence[Sequence[str]]) -> str:
    widths = [_breadth(column) for column in columns]
    rows = (
        "   ".join(_pad(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in zip(*columns, strict=True)
    )
    return "\n".join([*rows, ""])


def _breadth(column: Sequence[str]) -> int:
    return max(map(cell_len, column))


def table_lists(lists: Lists) -> list[Table]:
    """Table a neuron's lists of tokens, each under what it is."""
    import pandas as pd

    return [
        Table(pd.DataFrame([(t, v) for t, _, v in row], columns=["token", "value"]), TITLES[side])
        for side, row in lists.items()
    ]


def describe(m: Measures) -> list[str]:
    """Write the numbers, and what the lists do not say."""
    lines = [
        f"question norm {m.question_norm:.3f}, bias {m.question_bias:.3f}; "
        f"answer norm {m.answer_norm:.3f}; cosine of the two {m.reads_writes:.3f}"
        + (f" ({m.role})" if m.role else ""),
        f"over the vocabulary: mean {m.moments.mean:.4f}, variance {m.moments.variance:.3g}, "
        f"skew {m.moments.skew:.2f}, kurtosis {m.moments.kurtosis:.2f}; "
        f"null space {m.null_space:.3f}",
    ]
    if m.gate_measures is not None:
        g = m.gate_measures
        lines.insert(
            1,
            f"gate norm {g.norm:.3f}, bias {g.bias:.3f}; cosine of gate and question {g.cosine:.3f}, "
            f"of gate and answer {g.writes:.3f}; "
            "where the question scores below zero the answer is negated",
        )
    if m.kind == "entropy":
        lines.append("the unembedding barely reads this answer: its token lists mean nothing")
    if m.layer > 0:
        lines.append(
            "question tokens are a hint only: above layer 0 a question reads what other layers wrote"
        )
    return lines


def _width(listed: Sequence[TokenValue]) -> int:
    return max(cell_len(token) for token, _, _ in listed)


def _pad(text: str, width: int) -> str:
    """Pad to a width in the terminal, where some characters take two columns and some none."""
    return text + " " * (width - cell_len(text))

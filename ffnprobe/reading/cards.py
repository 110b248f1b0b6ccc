"""A neuron's card: its token lists side by side, its numbers below, as text or HTML."""

from collections.abc import Mapping, Sequence

from rich.cells import cell_len

from ffnprobe.cards import card, grid_html
from ffnprobe.reading.measures import Measures
from ffnprobe.reading.tokens import TokenValue

Lists = Mapping[str, Sequence[TokenValue]]
TITLES = {
    "gate_tokens": "gate opens on",
    "question_tokens": "question opens on",
    "promotes": "answer promotes",
    "suppresses": "answer suppresses",
}


def card_text(measures: Measures, lists: Lists) -> str:
    """Write a card that pastes as text: aligned columns, no colour."""
    columns = [
        [TITLES[side], *(f"{_pad(token, _width(row))}  {value:9.4f}" for token, _, value in row)]
        for side, row in lists.items()
    ]
    widths = [max(map(cell_len, column)) for column in columns]
    rows = [
        "   ".join(_pad(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in zip(*columns, strict=True)
    ]
    return "\n".join([f"{measures.name}  {measures.kind}", "", *rows, "", *describe(measures)])


def card_html(measures: Measures, lists: Lists) -> str:
    """Write a card as a small HTML table."""
    heads = [head for side in lists for head in (TITLES[side], "")]
    rows = [
        [cell for token, _, value in row for cell in (token, value)]
        for row in zip(*lists.values(), strict=True)
    ]
    title = f"{measures.name} {measures.kind}"
    return card(title, grid_html(heads, rows), note="; ".join(describe(measures)))


def describe(m: Measures) -> list[str]:
    """Write the numbers, and what the lists do not say."""
    lines = [
        f"question norm {m.question_norm:.3f}, bias {m.question_bias:.3f}; "
        f"answer norm {m.answer_norm:.3f}; cosine of the two {m.cosine:.3f}",
        f"over the vocabulary: mean {m.moments.mean:.4f}, variance {m.moments.variance:.3g}, "
        f"skew {m.moments.skew:.2f}, kurtosis {m.moments.kurtosis:.2f}; "
        f"null space {m.null_space:.3f}",
    ]
    if m.gate_measures is not None:
        g = m.gate_measures
        lines.insert(
            1,
            f"gate norm {g.norm:.3f}, bias {g.bias:.3f}; cosine of gate and question {g.cosine:.3f}; "
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

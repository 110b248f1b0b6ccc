"""Cards: a result as a small piece of HTML for a notebook, without script.

Colours are those of the page around the card, with translucent ones on top, so that a card reads on
light and on dark. Everything shown is escaped; `tex2jax_ignore` keeps notebooks from taking a "$"
in a token for mathematics.

>>> print(tokens_html(["<b>"], [1.0]))
<span style="..." title="1.000">&lt;b&gt;</span>
"""

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from ffnprobe.cells import format_value

if TYPE_CHECKING:
    import pandas as pd

_LINE = "1px solid rgba(128,128,128,.35)"
_CARD = f"border:{_LINE};border-radius:6px;padding:8px 12px;margin:4px 0;overflow-x:auto;color:inherit;background:transparent"
_NUMBERS = "text-align:right;font-variant-numeric:tabular-nums"
# A token's chip; the colour tells a value above zero (blue) from one below (vermillion).
_CHIP = f"display:inline-block;border:{_LINE};border-radius:4px;padding:0 4px;margin:1px;overflow-wrap:anywhere"
_ABOVE, _BELOW = "0,114,178", "213,94,0"
_STRONGEST = 0.65
ROWS = 60


def card(title: str, *parts: str, note: str = "") -> str:
    """Put parts, which are HTML already, under a title and above a note, which are text."""
    foot = f'<div style="opacity:.7;font-size:85%">{escape(note)}</div>' if note else ""
    return (
        f'<div class="ffnprobe tex2jax_ignore" style="{_CARD}">'
        f"<div><b>{escape(title)}</b></div>{''.join(parts)}{foot}</div>"
    )


def table_html(frame: "pd.DataFrame", *, most: int = ROWS) -> str:
    """Write a table's first rows, numbers to the right, and say if there are more."""
    heads = [str(name).replace("_", " ") for name in frame.columns]
    rows = [list(row) for row in frame.head(most).itertuples(index=False)]
    html = grid_html(heads, rows)
    if len(frame) > most:
        html += f"<div>… {len(frame) - most:,} more rows</div>"
    return html


def grid_html(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Write rows of values under their heads."""
    head = "".join(f'<th style="text-align:left">{escape(name)}</th>' for name in heads)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return (
        f'<table style="border-collapse:collapse;margin:6px 0"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def _cell(value: object) -> str:
    style = "text-align:left" if isinstance(value, str) else _NUMBERS
    return f'<td style="{style};padding:1px 8px">{escape(format_value(value))}</td>'


def tokens_html(
    tokens: Sequence[str],
    values: Sequence[float | None] | None = None,
    *,
    most: float | None = None,
) -> str:
    """Write tokens one after the other, coloured by their values (if any), the strongest at `most`."""
    given = [None] * len(tokens) if values is None else values
    limit = most or largest(given)
    return "".join(
        f'<span style="{_CHIP}">{escape(token)}</span>'
        if value is None
        else f'<span style="{_CHIP};background:{shade(value / limit)}" title="{format_value(value)}">'
        f"{escape(token)}</span>"
        for token, value in zip(tokens, given, strict=True)
    )


def largest(values: Sequence[float | None]) -> float:
    """Return the size of the largest value, by which colours are scaled; 1 if all are 0."""
    return max((abs(value) for value in values if value is not None), default=0.0) or 1.0


def shade(share: float) -> str:
    """Return a colour between nothing at 0 and the full one at ±1."""
    strength = min(1.0, abs(share)) * _STRONGEST
    return f"rgba({_ABOVE if share > 0 else _BELOW},{strength:.3f})"

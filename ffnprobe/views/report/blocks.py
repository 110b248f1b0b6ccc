"""The parts of a page: sections, figures, tables, lists, with all text escaped."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from pandas.api.types import is_numeric_dtype
from plotly.io import to_json

from ffnprobe.cells import format_value
from ffnprobe.provenance import Provenance
from ffnprobe.views.screens import fit

# Characters in a token that would end a script or a line of it.
_IN_SCRIPTS = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}  # fmt: skip


def section(title: str, *parts: str) -> str:
    """Group parts under a title."""
    return f"<section><h2>{escape(title)}</h2>{''.join(parts)}</section>"


def words(text: str, *, soft: bool = False) -> str:
    """Write a paragraph."""
    return f"<p{' class=soft' if soft else ''}>{escape(text)}</p>"


def code(text: str) -> str:
    """Write code."""
    return f"<pre>{escape(text)}</pre>"


def figure_html(figure: go.Figure) -> str:
    """Write a figure: its title and note as text above it, its data as JSON."""
    # As text, the title can be selected and read by a screen reader.
    screen = fit(figure)
    caption = f"<b>{escape(screen.title)}</b><span>{escape(screen.note)}</span>"
    data = safe_json(_short(json.loads(to_json(screen.figure, validate=False))))
    return (
        f'<figure><figcaption>{caption}</figcaption><div class="plot" style="height:{screen.height}px">'
        f'</div><script type="application/json">{data}</script></figure>'
    )


def _short(value: Any) -> Any:
    """Round every number to six digits, more than a screen shows."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: _short(part) for name, part in value.items()}
    return [_short(part) for part in value] if isinstance(value, list) else value


def safe_json(value: object) -> str:
    """Write JSON that is safe within a script element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for letter, name in _IN_SCRIPTS.items():
        text = text.replace(letter, name)
    return text


def table_block(
    table: pd.DataFrame, *, name: str, links: Sequence[str] | None = None, searchable: bool = True
) -> str:
    """Write a table that can be sorted and searched; `links` are those of its first column."""
    is_number = [is_numeric_dtype(kind) for kind in table.dtypes]
    heads = "".join(
        f'<th scope="col" aria-sort="none" data-type="{"number" if number else "text"}">'
        f'<button type="button">{escape(str(column).replace("_", " "))}</button></th>'
        for column, number in zip(table.columns, is_number, strict=True)
    )
    rows = []
    for order, row in enumerate(table.itertuples(index=False)):
        cells = [escape(format_value(value)) for value in row]
        if links is not None:
            cells[0] = f'<a href="#{escape(links[order])}">{cells[0]}</a>'
        rows.append(
            "<tr>"
            + "".join(
                f"<td class=number>{cell}</td>" if number else f"<td>{cell}</td>"
                for cell, number in zip(cells, is_number, strict=True)
            )
            + "</tr>"
        )
    box = (
        f'<div class="bar"><input type="search" data-table="{escape(name)}" placeholder="search" '
        f'aria-label="search the table"><span class="soft"></span></div>'
        if searchable
        else ""
    )
    return (
        f'{box}<div class="scroll"><table class="sortable" id="{escape(name)}"><thead><tr>{heads}</tr>'
        f"</thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def definitions(pairs: Mapping[str, str]) -> str:
    """Write a list of terms and what they mean."""
    rows = "".join(f"<dt>{escape(t)}</dt><dd>{escape(m)}</dd>" for t, m in pairs.items())
    return f"<dl>{rows}</dl>"


def provenance_block(provenance: Provenance) -> str:
    """Write the provenance."""
    lines = (line.partition(": ") for line in provenance.as_lines())
    return section(
        "Where the numbers come from", definitions({name: value for name, _, value in lines})
    )

"""The components a page is made of, and documents as components; a token is always text, never markup."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from dash import dcc, html
from pandas.api.types import is_numeric_dtype

from ffnprobe.documents import blocks
from ffnprobe.documents.html import largest, shade
from ffnprobe.errors import FfnProbeError
from ffnprobe.layout import escape_bidi, format_value
from ffnprobe.names import split_position
from ffnprobe.recipes import Recipe
from ffnprobe.views.explorer.addresses import Address
from ffnprobe.views.figures import plot, plot_all
from ffnprobe.views.theme import fit

Component = Any  # dash's own types are not checked
ROWS = 200
SITE = re.compile(r"L\d+N\d+(@\d+)?")


@dataclass(frozen=True)
class Viewport:
    """The browser's screen: whether it is in dark mode, whether it is as narrow as a phone."""

    is_dark: bool = False
    is_narrow: bool = False


def read_viewport(data: object) -> Viewport:
    """Read what the browser reports; anything unexpected counts as False."""
    known = data if isinstance(data, Mapping) else {}
    return Viewport(known.get("dark") is True, known.get("narrow") is True)


def is_untouched(value: float, first: float, live: object) -> bool:
    """Say whether a slider still has its first value."""
    return not live and value == first


def section(title: str, *children: Component, name: str = "") -> Component:
    """Group children under a title."""
    named = {"id": name} if name else {}
    return html.Section([html.H2(title), *children], **named)


def words(text: str, *, is_soft: bool = False) -> Component:
    """Write a paragraph."""
    return html.P(text, className="soft" if is_soft else "")


def alert(error: FfnProbeError) -> Component:
    """Say what went wrong and what to do now."""
    parts = [html.P(error.what)]
    if error.remedy:
        parts.append(html.P(["try: ", html.Code(error.remedy)]))
    return html.Div(parts, className="alert", role="alert")


def link(text: Component, href: str, *, is_near: bool = False, **more: Any) -> Component:
    """Link to an address; a near one is on the same page, which keeps its scroll position."""
    if is_near:
        more["data-near"] = "yes"
    return html.A(text, href=href, **more)


def neuron_link(
    address: Address, name: str, position: int | None = None, *, shown: str = ""
) -> Component:
    """Link to a neuron, at a position of the prompt if it is listed there, and keep the question."""
    at = {} if position is None else {"position": position}
    return link(shown or name, address.to(f"/neuron/{name}", **at), className="neuron")


def show_blocks(
    told: Iterable[blocks.Block], address: Address, viewport: Viewport, *, is_card: bool = False
) -> list[Component]:
    """Show a document's blocks; of a card what is not folded, since its title leads to the neuron."""
    shown = []
    for block in told:
        if isinstance(block, blocks.Words):
            shown += [html.P(escape_bidi(block.text), className=block.tone)] if block.text else []
        elif isinstance(block, blocks.Tokens):
            shown.append(chips(block.tokens, block.values))
        elif isinstance(block, blocks.Table):
            shown += _show_table(block, address)
        elif isinstance(block, blocks.Figure):
            every = (
                plot_all(block.result) if block.name is None else [plot(block.result, block.name)]
            )
            shown += [figure(each, viewport) for each in every]
        elif isinstance(block, blocks.Quote):
            shown.append(_show_quote(block))
        elif isinstance(block, blocks.Terms):
            pairs = block.pairs.items()
            shown.append(html.Dl([part for t, m in pairs for part in (html.Dt(t), html.Dd(m))]))
        elif isinstance(block, blocks.Code):
            shown.append(html.Pre(block.text))
        elif isinstance(block, blocks.Beside):
            every = [html.Div(show_blocks([each], address, viewport)) for each in block.blocks]
            shown.append(html.Div(every, className="beside"))
        elif isinstance(block, blocks.Cards):
            every = [_show_card(part, address, viewport) for part in block.sections]
            shown.append(html.Div(every, className="cards"))
        elif isinstance(block, blocks.Section):
            shown += [] if is_card and block.is_folded else _show_part(block, address, viewport)
        else:
            shown += show_blocks(block.tell(), address, viewport)
    return shown


def _show_part(part: blocks.Section, address: Address, viewport: Viewport) -> list[Component]:
    inside = show_blocks(part.tell(), address, viewport)
    if not part.is_folded:
        return [html.H3(part.title), *inside]
    named = {"id": f"part-{part.anchor}"} if part.anchor else {}
    return [html.Details([html.Summary(part.title), *inside], **named)] if inside else []


def _show_card(part: blocks.Section, address: Address, viewport: Viewport) -> Component:
    mark = html.Span(part.mark or "–", className=f"grade grade-{part.mark[:1]}")
    head = html.H3(
        [mark, " ", _link_site(address, part.anchor), part.title.removeprefix(part.anchor)]
    )
    return html.Article([head, *show_blocks(part.tell(), address, viewport, is_card=True)])


def _show_table(block: blocks.Table, address: Address) -> list[Component]:
    frame, links = block.shown, {}
    if "name" in frame:
        places = frame["position"] if "position" in frame else [None] * len(frame)
        pairs = zip(frame["name"], places, strict=True)
        links["name"] = [_link_site(address, str(name), position) for name, position in pairs]
    name = "" if block.name == "rows" else block.name
    head = [html.H3(name)] if name else []
    return [*head, table(frame, caption=name or "table", links=links)]


def _link_site(address: Address, name: str, position: int | None = None) -> Component:
    """Link a neuron's name, with or without its position; other names are text."""
    if not SITE.fullmatch(name):
        return name
    alone, at = split_position(name)
    return neuron_link(address, alone, position if at is None else at, shown=name)


def _show_quote(block: blocks.Quote) -> Component:
    mark = html.Mark(block.token, style={"backgroundColor": shade(block.share)})
    where = html.Small(f" {block.numbers} {block.source}", className="soft")
    return html.P([block.before, mark, block.after, where], className="quote")


def figure(drawn: go.Figure, viewport: Viewport, *, name: str = "") -> Component:
    """Show a figure, with its title and note as text above it."""
    screen = fit(drawn, is_dark=viewport.is_dark, is_narrow=viewport.is_narrow)
    named = {"id": name} if name else {}
    graph = dcc.Graph(
        figure=screen.figure, responsive=True, style={"height": f"{screen.height}px"},
        config={"displayModeBar": False}, **named,
    )  # fmt: skip
    caption = html.Figcaption([html.B(screen.title), html.Span(screen.note)])
    return html.Figure([caption, html.Div(graph, className="plot")])


def table(
    frame: pd.DataFrame,
    *,
    caption: str,
    links: Mapping[str, Sequence[Component]] | None = None,
    most: int = ROWS,
) -> Component:
    """Write a table; a column named in `links` shows those links instead."""
    shown = frame.head(most)
    replaced = links or {}
    is_number = {column: is_numeric_dtype(shown[column]) for column in shown.columns}
    columns = list(shown.columns)
    heads = [_head(str(column), is_number=is_number[column]) for column in columns]
    rows = []
    for order, values in enumerate(shown.itertuples(index=False)):
        cells = [
            html.Td(
                replaced[column][order] if column in replaced else format_value(value),
                className="number" if is_number[column] else "text",
            )
            for column, value in zip(columns, values, strict=True)
        ]
        rows.append(html.Tr(cells))
    body = html.Table(
        [html.Caption(caption), html.Thead(html.Tr(heads)), html.Tbody(rows)],
        className="sortable",
    )
    # A box that scrolls can be reached by keyboard.
    box = html.Div(body, className="scroll", tabIndex="0", role="region", **{"aria-label": caption})
    if len(frame) <= most:
        return box
    return html.Div([box, words(f"… {len(frame) - most:,} more rows", is_soft=True)])


def _head(column: str, *, is_number: bool) -> Component:
    """Write the head of a column, which sorts by it (`assets/tables.js`)."""
    kind = "number" if is_number else "text"
    named = html.Button(column.replace("_", " "), type="button")
    return html.Th(named, scope="col", className=kind, **{"aria-sort": "none", "data-type": kind})


def chips(
    tokens: Sequence[str],
    values: Sequence[float | None] | None = None,
    *,
    hrefs: Sequence[str] | None = None,
    current: int | None = None,
) -> Component:
    """Write tokens as chips, coloured by their values (if any); `hrefs` makes them links."""
    given = [None] * len(tokens) if values is None else values
    most, shown = largest(given), []
    for order, (token, value) in enumerate(zip(tokens, given, strict=True)):
        more: dict[str, Any] = {"className": "chip"}
        if value is not None:
            more["style"] = {"backgroundColor": shade(value / most)}
            more["title"] = format_value(value)
        if order == current:
            more["aria-current"] = "true"
        if hrefs is None:
            shown.append(html.Span(token, **more))
        else:
            shown.append(link(token, hrefs[order], is_near=True, **more))
    return html.P(shown, className="prompt")


def recipes(recipe: Recipe) -> list[Component]:
    """Write the command and the Python that give what the page shows."""
    texts = {"command": recipe.command, "Python": recipe.python}
    return [
        html.Div(
            [
                html.H3(name),
                html.Pre(html.Code(text), tabIndex="0"),
                html.Button("copy", className="copy", **{"aria-label": f"copy the {name}"}),
            ],
            className="recipe",
        )
        for name, text in texts.items()
        if text
    ]


def field(label: str, box: Component, *, hint: str = "") -> Component:
    """Put a label before an input and a hint after it."""
    parts = [html.Label(label, htmlFor=box.id), box]
    return html.Div([*parts, html.Small(hint, className="soft")] if hint else parts, className="field")  # fmt: skip

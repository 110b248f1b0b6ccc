"""The components of pages: text, links, tables, figures, a document's blocks, the form of a prompt.

A token is always text, never markup. Forms and clicks become addresses in the browser
(`assets/script.js`), so that what is asked is in the address.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
import plotly.graph_objects as go
from dash import Dash, Input, Output, State, dcc, html, no_update
from pandas.api.types import is_numeric_dtype

from ffnprobe.documents import blocks
from ffnprobe.documents.html import largest, shade
from ffnprobe.errors import FfnProbeError
from ffnprobe.layout import escape_bidi, format_value
from ffnprobe.names import split_position
from ffnprobe.recipes import spell_token
from ffnprobe.tracing.trace import Trace
from ffnprobe.views.explorer.addresses import Address, read_address
from ffnprobe.views.explorer.session import PROMPT_BYTES, Session
from ffnprobe.views.figures import plot, plot_all
from ffnprobe.views.theme import fit

Component = Any  # dash's own types are not checked
Parts = list[Component]
ROWS = 200
SUGGESTED = 20
SITE = re.compile(r"L\d+N\d+(@\d+)?")
# What a callback reads of the page it is called from.
PLACE = State("location", "pathname"), State("location", "search")
HERE = *PLACE, State("screen", "data")


class Viewport(NamedTuple):
    is_dark: bool = False
    is_narrow: bool = False


def read_viewport(screen: object) -> Viewport:
    """Read what the browser reports; anything unexpected counts as False."""
    options = screen if isinstance(screen, Mapping) else {}
    return Viewport(options.get("dark") is True, options.get("narrow") is True)


Draw = Callable[[Address, float, Viewport], Parts]
Links = Mapping[str, Sequence[Component]]


def page(heading: Component, *parts: Component) -> Component:
    return html.Div([html.H1(heading), *parts])


def section(title: str, *children: Component, name: str = "") -> Component:
    named = {"id": name} if name else {}
    return html.Section([html.H2(title), *children], **named)


def words(text: str, *, is_soft: bool = False) -> Component:
    return html.P(text, className="soft" if is_soft else "")


def alert(error: FfnProbeError) -> Component:
    parts = [html.P(error.what)]
    if error.remedy:
        parts.append(html.P(["try: ", html.Code(error.remedy)]))
    return html.Div(parts, className="alert", role="alert")


def link(
    text: Component, href: str, *, is_near: bool = False, is_current: bool = False, **more: Any
) -> Component:
    """Link to an address; a near one is on the same page, which keeps its scroll position."""
    if is_near:
        more["data-near"] = "yes"
    if is_current:
        more["aria-current"] = "true"
    return html.A(text, href=href, **more)


def link_neuron(address: Address, name: str, position: int | None = None) -> Component:
    """Link to a neuron, at the position it is listed at; names of other things stay text."""
    if not SITE.fullmatch(name):
        return name
    neuron, own = split_position(name)
    href = address.to(f"/neuron/{neuron}", position=position if own is None else own)
    return link(name, href, className="neuron")


def show_blocks(document: Iterable[blocks.Block], address: Address, viewport: Viewport) -> Parts:
    def show(block: blocks.Block) -> Parts:
        match block:
            case blocks.Words():
                return [html.P(escape_bidi(block.text), className=block.tone)] if block.text else []
            case blocks.Tokens():
                return [chips(block.tokens, block.values)]
            case blocks.Table():
                head = [html.H3(block.title)] if block.title else []
                return [*head, neuron_table(block.frame, address, caption=block.title or "table")]
            case blocks.Figure(name=None):
                return [figure(each, viewport) for each in plot_all(block.result)]
            case blocks.Figure():
                return [figure(plot(block.result, block.name), viewport)]
            case blocks.Quote():
                mark = html.Mark(block.token, style={"backgroundColor": shade(block.share)})
                where = html.Small(f" {block.numbers} {block.source}", className="soft")
                return [html.P([block.before, mark, block.after, where], className="quote")]
            case blocks.Terms():
                return [define(block.pairs)]
            case blocks.Code():
                return [html.Pre(block.text)]
            case blocks.Beside():
                beside = [html.Div(show(each)) for each in block.blocks]
                return [html.Div(beside, className="beside")]
            case blocks.Cards():
                cards = [_show_card(card, address, viewport) for card in block.sections]
                return [html.Div(cards, className="cards")]
        inside = show_blocks(block.tell(), address, viewport)
        if isinstance(block, blocks.OnScreen):
            return inside
        if not block.is_folded:
            return [html.H3(block.title), *inside]
        named = {"id": f"part-{block.anchor}"} if block.anchor else {}
        return [html.Details([html.Summary(block.title), *inside], **named)] if inside else []

    return [component for block in document for component in show(block)]


def _show_card(card: blocks.Section, address: Address, viewport: Viewport) -> Component:
    """Show what is not folded of a card, since its title leads to the neuron."""
    mark = html.Span(card.mark or "–", className=f"grade grade-{card.mark[:1]}")
    title = [mark, " ", link_neuron(address, card.anchor), card.title.removeprefix(card.anchor)]
    shown = [b for b in card.tell() if not (isinstance(b, blocks.Section) and b.is_folded)]
    return html.Article([html.H3(title), *show_blocks(shown, address, viewport)])


def define(pairs: Mapping[str, Component]) -> Component:
    rows = [(html.Dt(word), html.Dd(meaning)) for word, meaning in pairs.items()]
    return html.Dl([part for row in rows for part in row])


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
    frame: pd.DataFrame, *, caption: str, links: Links | None = None, most: int = ROWS
) -> Component:
    """Write a table; a column named in `links` shows those links instead."""
    links, names = links or {}, [str(column) for column in frame.columns]
    kinds = ["number" if is_numeric_dtype(kind) else "text" for kind in frame.dtypes]
    rows = []
    for order, row in enumerate(frame.head(most).itertuples(index=False)):
        values = map(format_value, row)
        cells = [links[n][order] if n in links else v for n, v in zip(names, values, strict=True)]
        cells = [html.Td(cell, className=kind) for cell, kind in zip(cells, kinds, strict=True)]
        rows.append(html.Tr(cells))
    # A head sorts by its column (`assets/tables.js`).
    heads = [
        html.Th(
            html.Button(name.replace("_", " "), type="button"),
            scope="col", className=kind, **{"aria-sort": "none", "data-type": kind},
        )
        for name, kind in zip(names, kinds, strict=True)
    ]  # fmt: skip
    whole = [html.Caption(caption), html.Thead(html.Tr(heads)), html.Tbody(rows)]
    # A box that scrolls can be reached by keyboard.
    box = html.Div(
        html.Table(whole, className="sortable"),
        className="scroll", tabIndex="0", role="region", **{"aria-label": caption},
    )  # fmt: skip
    if len(frame) <= most:
        return box
    return html.Div([box, words(f"… {len(frame) - most:,} more rows", is_soft=True)])


def neuron_table(frame: pd.DataFrame, address: Address, *, caption: str) -> Component:
    """Write a table whose names lead to the neurons, at the positions they are listed at."""
    if "name" not in frame:
        return table(frame, caption=caption)
    positions = frame["position"] if "position" in frame else [None] * len(frame)
    pairs = zip(frame["name"], positions, strict=True)
    names = [link_neuron(address, str(name), position) for name, position in pairs]
    return table(blocks.Table(frame).shown, caption=caption, links={"name": names})


def chips(
    tokens: Sequence[str],
    values: Sequence[float | None] | None = None,
    *,
    address: Address | None = None,
    current: int | None = None,
) -> Component:
    """Write tokens as chips, coloured by their values (if any); with an address they lead to their positions."""
    values = [None] * len(tokens) if values is None else values
    most, parts = largest(values), []
    for position, (token, value) in enumerate(zip(tokens, values, strict=True)):
        look: dict[str, Any] = {"className": "chip"}
        if value is not None:
            look["style"] = {"backgroundColor": shade(value / most)}
            look["title"] = format_value(value)
        if address is None:
            parts.append(html.Span(token, **look))
        else:
            href, is_current = address.here(position=position), position == current
            parts.append(link(token, href, is_near=True, is_current=is_current, **look))
    return html.P(parts, className="prompt")


def field(label: str, box: Component, *, hint: str = "") -> Component:
    parts = [html.Label(label, htmlFor=box.id), box]
    if hint:
        parts.append(html.Small(hint, className="soft"))
    return html.Div(parts, className="field")


def follow_slider(app: Dash, name: str, output: str, draw: Draw) -> None:
    """Draw `output` again when a slider is moved; its value goes to `live`, and so into the address."""

    def follow(
        moved: float | str | None, first: float, live: object, path: str, search: str, screen: object
    ) -> tuple[object, object]:  # fmt: skip
        # The page is already drawn with a slider's first value.
        if moved is None or (not live and float(moved) == first):
            return no_update, no_update
        value = float(moved)
        return draw(read_address(path, search), value, read_viewport(screen)), {name: value}

    app.callback(
        Output(output, "children"), Output("live", "data", allow_duplicate=True),
        Input(name, "value"), State("first", "data"), State("live", "data"), *HERE,
        prevent_initial_call=True,
    )(follow)  # fmt: skip


def prompt_form(
    session: Session, address: Address, trace: Trace | None, *, has_answer: bool = True
) -> Component:
    """Ask for a prompt and, where there is one, for an answer, its rival and what to compare with."""
    prompt = dcc.Textarea(
        id="prompt", value=address.text("prompt"), rows=2, maxLength=PROMPT_BYTES, spellCheck=False,
        placeholder="Michael Jordan plays the sport of",
    )  # fmt: skip
    parts = [field("Prompt", prompt, hint="Enter runs it, Shift+Enter begins a new line.")]
    answers = [
        field(
            label,
            dcc.Input(
                id=name, value=address.text(name), list="suggested", placeholder=placeholder,
                spellCheck=False, autoComplete="off",
            ),
        )
        for name, label, placeholder in (
            ("answer", "Answer", "the next text, with its leading space"),
            ("versus", "rather than", "optional"),
        )
    ]  # fmt: skip
    contrast, vocab = _ask_contrast(session, address), session.model.vocab
    run = [html.Button("Run", id="run", className="main")]
    if vocab.bos is not None:
        usual = vocab.puts_bos(None)
        is_on = usual if address.bos is None else address.bos
        run.insert(0, _switch("bos", f"{vocab.show(vocab.bos)} first", is_on=is_on, usual=usual))
    if has_answer:
        parts += [html.Div([*answers, *run], className="row"), contrast]
    else:  # the inputs stay, hidden, so that their values are kept
        parts += [html.Div([*answers, contrast], hidden=True), html.Div(run, className="row")]
    likeliest = [] if trace is None else trace.predictions(min(SUGGESTED, len(vocab))).id.tolist()
    texts = [spell_token(session.model, token) for token in likeliest]
    suggested = [html.Option(value=text) for text in texts if isinstance(text, str)]
    parts.append(html.Datalist(suggested, id="suggested"))
    return html.Div(parts, className="form", role="search", **{"aria-label": "prompt"})


def _ask_contrast(session: Session, address: Address) -> Component:
    """Ask for the same sentence about other subjects."""
    typed = dcc.Textarea(
        id="contrast", value="\n".join(address.texts("contrast")), rows=3, maxLength=PROMPT_BYTES,
        spellCheck=False, placeholder="Tiger Woods plays the sport of",
    )  # fmt: skip
    hint = "The same sentence about other subjects, one a line."
    summary = html.Summary("Why this subject, not this kind of sentence?")
    parts = [summary, field("Contrast prompts", typed, hint=hint)]
    is_on = address.has("related")
    if session.has_relations:
        parts.append(_switch("related", "contrast with other facts of the relation", is_on=is_on))
    return html.Details(parts, open=is_on or address.has("contrast"))


def _switch(name: str, label: str, *, is_on: bool, usual: bool = False) -> Component:
    """Offer a switch; the address names it only if it is not as usual."""
    box = dcc.Checklist([{"label": label, "value": "1"}], ["1"] if is_on else [], id=name)
    return html.Div(box, className="switch", **{"data-usual": "1" if usual else "0"})

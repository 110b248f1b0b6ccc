"""Blocks as HTML: on a page dressed by its style sheet, on a notebook's card by styles of its own.

Everything shown is escaped. A card has no script, takes its colours from the page around it, with
translucent ones on top, so that it reads on light and on dark; `tex2jax_ignore` keeps notebooks from taking
a "$" in a token for mathematics.

>>> print(write_html([blocks.Tokens(["<b>"], [1.0])]))
<p class="prompt"><span class="chip" style="background:rgba(0,114,178,0.650)" title="1.000">&lt;b&gt;</span></p>
"""

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from ffnprobe.documents import blocks
from ffnprobe.layout import escape_bidi, format_value

if TYPE_CHECKING:
    import pandas as pd

_LINE = "1px solid rgba(128,128,128,.35)"
_CARD = f"border:{_LINE};border-radius:6px;padding:8px 12px;margin:4px 0;overflow-x:auto;color:inherit;background:transparent"
# What a card wears where a page has a class.
_STYLES = {
    "soft": "opacity:.7;font-size:85%",
    "strong": "font-weight:bold",
    "prompt": "margin:4px 0",
    "chip": f"display:inline-block;border:{_LINE};border-radius:4px;padding:0 4px;margin:1px;overflow-wrap:anywhere",
    "number": "text-align:right;font-variant-numeric:tabular-nums;padding:1px 8px",
    "text": "text-align:left;padding:1px 8px",
    "rows": "border-collapse:collapse;margin:6px 0",
    "beside": "display:flex;flex-wrap:wrap;gap:0 24px",
}
# A value above zero is blue, one below vermillion.
ABOVE, BELOW = "0,114,178", "213,94,0"
_STRONGEST = 0.65
Draw = Callable[[blocks.Figure], str]


def write_html(document: Iterable[blocks.Block], draw: Draw = lambda _: "") -> str:
    """Write blocks for a page; `draw` writes its figures."""
    return _Page(draw).write_all(document)


def write_card(title: str, document: Iterable[blocks.Block]) -> str:
    """Write a notebook's card: what is not folded, without figures."""
    head = f"<div><b>{escape(title)}</b></div>" if title else ""
    body = _Card().write_all(document)
    return f'<div class="ffnprobe tex2jax_ignore" style="{_CARD}">{head}{body}</div>'


def largest(values: Sequence[float | None]) -> float:
    """Return the size of the largest value, by which colours are scaled; 1 if all are 0."""
    return max((abs(value) for value in values if value is not None), default=0.0) or 1.0


def shade(share: float) -> str:
    """Return a colour between nothing at 0 and the full one at ±1."""
    strength = min(1.0, abs(share)) * _STRONGEST
    return f"rgba({ABOVE if share > 0 else BELOW},{strength:.3f})"


class _Card:
    """Blocks in the markup that every notebook shows: no script, no style sheet."""

    paragraph = "div"
    mark = "span"

    def write(self, block: blocks.Block) -> str:
        """Write one block; what it has no way to show is left out."""
        write = getattr(self, f"_{type(block).__name__.lower()}", None)
        return "" if write is None else str(write(block))

    def write_all(self, document: Iterable[blocks.Block]) -> str:
        return "".join(map(self.write, document))

    def look(self, name: str, style: str = "") -> str:
        return f' style="{";".join(filter(None, (_STYLES.get(name), style)))}"'

    def _words(self, block: blocks.Words) -> str:
        look = "" if block.tone == "plain" else self.look(block.tone)
        text = escape(escape_bidi(block.text))
        return f"<{self.paragraph}{look}>{text}</{self.paragraph}>" if text else ""

    def _tokens(self, block: blocks.Tokens) -> str:
        values = block.values or [None] * len(block.tokens)
        most, chips = largest(values), []
        for token, value in zip(block.tokens, values, strict=True):
            style = "" if value is None else f"background:{shade(value / most)}"
            title = "" if value is None else f' title="{format_value(value)}"'
            chips.append(f"<span{self.look('chip', style)}{title}>{escape(token)}</span>")
        return f"<p{self.look('prompt')}>{''.join(chips)}</p>"

    def _table(self, block: blocks.Table) -> str:
        frame, rest = block.shown, len(block.frame) - blocks.ROWS
        more = f"<div>… {rest:,} more rows</div>" if rest > 0 else ""
        title = f"<i>{escape(block.title)}</i>" if block.title else ""
        rows = self._grid(frame.head(blocks.ROWS))
        return f"{title}<table{self.look('rows')}>{rows}</table>{more}"

    def _grid(self, frame: "pd.DataFrame", link: str | None = None) -> str:
        """Write a table's rows under their heads; cells of the column `link` lead to cards."""
        from pandas.api.types import is_numeric_dtype

        names = [str(column) for column in frame.columns]
        kinds = ["number" if is_numeric_dtype(kind) else "text" for kind in frame.dtypes]
        looks = [f"<td{self.look(kind)}>" for kind in kinds]
        heads = map(self._head, (escape(name.replace("_", " ")) for name in names), kinds)
        rows = list[str]()
        for row in frame.itertuples(index=False):
            rows.append("<tr>")
            for name, look, value in zip(names, looks, row, strict=True):
                text = escape(format_value(value))
                cell = f'<a href="#{text}">{text}</a>' if name == link else text
                rows.append(f"{look}{cell}</td>")
            rows.append("</tr>")
        return f"<thead><tr>{''.join(heads)}</tr></thead><tbody>{''.join(rows)}</tbody>"

    def _head(self, name: str, kind: str) -> str:
        return f"<th{self.look(kind)}>{name}</th>"

    def _quote(self, block: blocks.Quote) -> str:
        token = f'<{self.mark} style="background:{shade(block.share)}">{escape(block.token)}</{self.mark}>'
        where = f"<small>{escape(f'{block.numbers} {block.source}')}</small>"
        text = f"{escape(block.before)}{token}{escape(block.after)} {where}"
        return f"<{self.paragraph}{self.look('quote')}>{text}</{self.paragraph}>"

    def _figure(self, block: blocks.Figure) -> str:
        return self.write(block.instead) if block.instead else ""

    def _beside(self, block: blocks.Beside) -> str:
        parts = "".join(f"<div>{self.write(each)}</div>" for each in block.blocks)
        return f"<div{self.look('beside')}>{parts}</div>"

    def _section(self, block: blocks.Section) -> str:
        return (
            "" if block.is_folded else f"<p>{escape(block.title)}</p>{self.write_all(block.tell())}"
        )


class _Page(_Card):
    """Blocks in the markup of a page, with figures, cards, and tables that can be sorted and searched."""

    paragraph = "p"
    mark = "mark"

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.tables = 0

    def look(self, name: str, style: str = "") -> str:
        return f' class="{name}"' + (f' style="{style}"' if style else "")

    def _table(self, block: blocks.Table) -> str:
        self.tables += 1
        name = f"table-{self.tables}"
        box = (
            f'<div class="bar"><input type="search" data-table="{name}" placeholder="search" '
            'aria-label="search the table"><span class="soft"></span></div>'
        )
        title = f"<h3>{escape(block.title)}</h3>" if block.title else ""
        grid = self._grid(block.shown, "name" if block.has_cards else None)
        table = f'<table class="sortable" id="{name}">{grid}</table>'
        return f'{title}{box if block.is_long else ""}<div class="scroll">{table}</div>'

    def _head(self, name: str, kind: str) -> str:
        button = f'<button type="button">{name}</button>'
        return f'<th scope="col" aria-sort="none" data-type="{kind}">{button}</th>'

    def _section(self, block: blocks.Section) -> str:
        title, body = escape(escape_bidi(block.title)), self.write_all(block.tell())
        if not block.is_folded:
            return f"<section><h2>{title}</h2>{body}</section>"
        name = f' id="{escape(block.anchor)}"' if block.anchor else ""
        return f"<details{name}><summary>{title}</summary>{body}</details>" if body else ""

    def _cards(self, block: blocks.Cards) -> str:
        return f"<div class=cards>{''.join(map(self._article, block.sections))}</div>"

    def _article(self, section: blocks.Section) -> str:
        mark = f'<span class="grade grade-{escape(section.mark[:1])}">{escape(section.mark or "–")}</span>'
        head = f"<h3>{mark} {escape(escape_bidi(section.title))}</h3>"
        return f'<article id="{escape(section.anchor)}">{head}{self.write_all(section.tell())}</article>'

    def _figure(self, block: blocks.Figure) -> str:
        return self.draw(block)

    def _terms(self, block: blocks.Terms) -> str:
        pairs = block.pairs.items()
        rows = [f"<dt>{escape(word)}</dt><dd>{escape(meaning)}</dd>" for word, meaning in pairs]
        return f"<dl>{''.join(rows)}</dl>"

    def _code(self, block: blocks.Code) -> str:
        return f"<pre>{escape(block.text)}</pre>"

    def _onscreen(self, block: blocks.OnScreen) -> str:
        return self.write_all(block.tell())

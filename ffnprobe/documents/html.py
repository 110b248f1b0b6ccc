"""Blocks as HTML: on a page dressed by its style sheet, on a notebook's card by styles of its own.

Everything shown is escaped. A card has no script, takes its colours from the page around it, with
translucent ones on top, so that it reads on light and on dark; `tex2jax_ignore` keeps notebooks from taking
a "$" in a token for mathematics.

>>> print(write_html([Tokens(["<b>"], [1.0])]))
<p class="prompt"><span class="chip" style="background:rgba(0,114,178,0.650)" title="1.000">&lt;b&gt;</span></p>
"""

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from ffnprobe.documents.blocks import (
    ROWS,
    Beside,
    Block,
    Cards,
    Code,
    Figure,
    OnScreen,
    Quote,
    Section,
    Table,
    Terms,
    Tokens,
    Words,
)
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


def write_html(blocks: Iterable[Block], draw: Callable[[Figure], str] = lambda _: "") -> str:
    """Write blocks for a page; `draw` writes its figures."""
    return "".join(map(_Page(draw).write, blocks))


def write_card(title: str, blocks: Iterable[Block]) -> str:
    """Write a notebook's card: what is not folded, without figures."""
    parts = "".join(map(_Card().write, blocks))
    head = f"<div><b>{escape(title)}</b></div>" if title else ""
    return f'<div class="ffnprobe tex2jax_ignore" style="{_CARD}">{head}{parts}</div>'


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

    def write(self, block: Block) -> str:
        """Write one block; what it has no way to show is left out."""
        write = getattr(self, f"_{type(block).__name__.lower()}", None)
        return "" if write is None else str(write(block))

    def look(self, name: str, style: str = "") -> str:
        """Dress an element."""
        return f' style="{";".join(filter(None, (_STYLES.get(name), style)))}"'

    def _all(self, blocks: Iterable[Block]) -> str:
        return "".join(map(self.write, blocks))

    def _words(self, block: Words) -> str:
        look = "" if block.tone == "plain" else self.look(block.tone)
        text = escape(escape_bidi(block.text))
        return f"<{self.paragraph}{look}>{text}</{self.paragraph}>" if text else ""

    def _tokens(self, block: Tokens) -> str:
        values = block.values or [None] * len(block.tokens)
        most, chips = largest(values), []
        for token, value in zip(block.tokens, values, strict=True):
            look = self.look("chip")
            if value is not None:
                coloured = self.look("chip", f"background:{shade(value / most)}")
                look = f'{coloured} title="{format_value(value)}"'
            chips.append(f"<span{look}>{escape(token)}</span>")
        return f"<p{self.look('prompt')}>{''.join(chips)}</p>"

    def _table(self, block: Table) -> str:
        frame = block.shown
        more = f"<div>… {len(frame) - ROWS:,} more rows</div>" if len(frame) > ROWS else ""
        name = f"<i>{escape(block.name)}</i>" if block.name not in ("", "rows") else ""
        return f"{name}<table{self.look('rows')}>{self._grid(frame.head(ROWS))}</table>{more}"

    def _grid(self, frame: "pd.DataFrame", link: str | None = None) -> str:
        """Write a table's rows under their heads; cells of the column `link` lead to cards."""
        from pandas.api.types import is_numeric_dtype

        kinds = ["number" if is_numeric_dtype(kind) else "text" for kind in frame.dtypes]
        names = [str(column).replace("_", " ") for column in frame.columns]
        heads = "".join(self._head(escape(n), kind) for n, kind in zip(names, kinds, strict=True))
        looks = [f"<td{self.look(kind)}>" for kind in kinds]
        is_link = [column == link for column in frame.columns]
        rows = list[str]()
        for row in frame.itertuples(index=False):
            cells = [escape(format_value(value)) for value in row]
            cells = [
                f'<a href="#{cell}">{cell}</a>' if leads else cell
                for cell, leads in zip(cells, is_link, strict=True)
            ]
            joined = (f"{look}{cell}</td>" for look, cell in zip(looks, cells, strict=True))
            rows.append(f"<tr>{''.join(joined)}</tr>")
        return f"<thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody>"

    def _head(self, name: str, kind: str) -> str:
        return f"<th{self.look(kind)}>{name}</th>"

    def _quote(self, block: Quote) -> str:
        token = f'<{self.mark} style="background:{shade(block.share)}">{escape(block.token)}</{self.mark}>'
        where = f"<small>{escape(f'{block.numbers} {block.source}')}</small>"
        text = f"{escape(block.before)}{token}{escape(block.after)} {where}"
        return f"<{self.paragraph}{self.look('quote')}>{text}</{self.paragraph}>"

    def _figure(self, block: Figure) -> str:
        return self.write(block.instead) if block.instead else ""

    def _beside(self, block: Beside) -> str:
        parts = "".join(f"<div>{self.write(each)}</div>" for each in block.blocks)
        return f"<div{self.look('beside')}>{parts}</div>"

    def _section(self, block: Section) -> str:
        return "" if block.is_folded else f"<p>{escape(block.title)}</p>{self._all(block.tell())}"


class _Page(_Card):
    """Blocks in the markup of a page, with figures, cards, and tables that can be sorted and searched."""

    paragraph = "p"
    mark = "mark"

    def __init__(self, draw: Callable[[Figure], str]) -> None:
        self.draw = draw
        self.tables = 0

    def look(self, name: str, style: str = "") -> str:
        """Dress an element by the page's style sheet."""
        return f' class="{name}"' + (f' style="{style}"' if style else "")

    def _table(self, block: Table) -> str:
        self.tables += 1
        name = f"table-{self.tables}"
        box = (
            f'<div class="bar"><input type="search" data-table="{name}" placeholder="search" '
            'aria-label="search the table"><span class="soft"></span></div>'
        )
        title = f"<h3>{escape(block.name)}</h3>" if block.name not in ("", "rows") else ""
        grid = self._grid(block.shown, "name" if block.has_cards else None)
        table = f'<table class="sortable" id="{name}">{grid}</table>'
        return f'{title}{box if block.is_long else ""}<div class="scroll">{table}</div>'

    def _head(self, name: str, kind: str) -> str:
        button = f'<button type="button">{name}</button>'
        return f'<th scope="col" aria-sort="none" data-type="{kind}">{button}</th>'

    def _section(self, block: Section) -> str:
        title, told = escape(escape_bidi(block.title)), self._all(block.tell())
        if block.is_folded:
            name = f' id="{escape(block.anchor)}"' if block.anchor else ""
            return f"<details{name}><summary>{title}</summary>{told}</details>" if told else ""
        return f"<section><h2>{title}</h2>{told}</section>"

    def _cards(self, block: Cards) -> str:
        return f"<div class=cards>{''.join(map(self._article, block.sections))}</div>"

    def _article(self, section: Section) -> str:
        mark = f'<span class="grade grade-{escape(section.mark[:1])}">{escape(section.mark or "–")}</span>'
        head = f"<h3>{mark} {escape(escape_bidi(section.title))}</h3>"
        return f'<article id="{escape(section.anchor)}">{head}{self._all(section.tell())}</article>'

    def _figure(self, block: Figure) -> str:
        return self.draw(block)

    def _terms(self, block: Terms) -> str:
        rows = "".join(f"<dt>{escape(t)}</dt><dd>{escape(m)}</dd>" for t, m in block.pairs.items())
        return f"<dl>{rows}</dl>"

    def _code(self, block: Code) -> str:
        return f"<pre>{escape(block.text)}</pre>"

    def _onscreen(self, block: OnScreen) -> str:
        return self._all(block.tell())

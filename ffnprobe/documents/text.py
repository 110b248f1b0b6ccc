"""Blocks as lines of text, for the terminal and for `print`: what is folded or needs a screen is left out.

>>> folded = blocks.Section("more", lambda: [blocks.Words("left out")], is_folded=True)
>>> print(write_text("a title", [blocks.Words("a sentence"), folded]))
a title
a sentence
"""

from collections.abc import Iterable, Iterator

from ffnprobe.documents import blocks
from ffnprobe.layout import UNLIMITED, find_width, wrap, write_grid, write_table

# A line is made of pieces, each with its tone: of a block's words, or above and below zero.
Line = tuple[tuple[str, str], ...]
BLANK: Line = (("", "plain"),)


def write_text(title: str, document: Iterable[blocks.Block]) -> str:
    """Write a title and blocks as wide as the terminal, or 80 columns where there is none."""
    width = find_width()
    width = 80 if width == UNLIMITED else width
    lines = write_lines(title, document, width=width, most=blocks.ROWS)
    return "\n".join("".join(text for text, _ in line) for line in lines).rstrip("\n")


def write_lines(
    title: str,
    document: Iterable[blocks.Block],
    *,
    width: int,
    most: int | None = None,
    rest: str = "",
    is_full: bool = False,
) -> Iterator[Line]:
    """Write a title and blocks as lines; what is folded only if `is_full`.

    Of a table `most` rows where the width has an end; `rest` says how to see all of them.
    """
    shown = list(_unfold(document, is_full=is_full))
    # One table alone is named by the title.
    is_alone = bool(title) and sum(isinstance(block, blocks.Table) for block in shown) == 1
    last: Line | None = None
    for block in [blocks.Words(title, "strong"), *shown]:
        if isinstance(block, _Title) and last not in (None, BLANK):
            yield BLANK
        if isinstance(block, blocks.Table):
            name = "" if is_alone or (title and block.name == "rows") else block.name
            lines = _write_table(block, name, width, most, rest)
        else:
            lines = _write(block, width)
        for last in lines:
            yield last


class _Title(blocks.Words):
    """The title of a section."""


def _unfold(document: Iterable[blocks.Block], *, is_full: bool) -> Iterator[blocks.Block]:
    """Go through what text can show, each section after its title; one that says nothing has none."""
    for block in document:
        if isinstance(block, blocks.Figure):
            yield from _unfold([block.instead] if block.instead else [], is_full=is_full)
        elif isinstance(block, blocks.Beside):
            yield from _unfold(block.blocks, is_full=is_full)
        elif isinstance(block, blocks.Section):
            if is_full or not block.is_folded:
                inside = list(_unfold(block.tell(), is_full=is_full))
                yield from [_Title(block.title, "strong"), *inside] if inside else []
        elif not isinstance(block, blocks.OnScreen | blocks.Cards | blocks.Tokens):
            yield block


def _write(block: blocks.Block, width: int) -> Iterator[Line]:
    if isinstance(block, blocks.Words):
        yield from _wrap(block.text, block.tone, width)
    elif isinstance(block, blocks.Quote):
        tone = "above" if block.share > 0 else "below"
        start = (f"{block.numbers}  {block.before}", "plain")
        yield start, (f"[{block.token}]", tone), (block.after, "plain"), (f"  {block.source}", "soft")  # fmt: skip
    elif isinstance(block, blocks.Terms):
        for word, meaning in block.pairs.items():
            yield from _wrap(f"{word}: {meaning}", "plain", width)
    elif isinstance(block, blocks.Code):
        yield ((block.text, "plain"),)


def _wrap(text: str, tone: str, width: int) -> Iterator[Line]:
    if text:
        yield from (((line, tone),) for line in wrap(text, width))


def _write_table(
    block: blocks.Table, name: str, width: int, most: int | None, rest: str
) -> Iterator[Line]:
    frame = block.shown
    limit = len(frame) if most is None or width == UNLIMITED else most
    write = write_grid if block.is_whole else write_table
    yield from _wrap(name, "strong", width)
    yield BLANK
    yield from (((line, "plain"),) for line in write(frame.head(limit), width=width).split("\n"))
    yield BLANK
    if limit < len(frame):
        yield ((f"the first {limit} of {len(frame):,} rows{rest}", "soft"),)

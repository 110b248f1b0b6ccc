"""Values and tables as text: in a terminal, in a card, on a page, in Markdown.

A table fits a width, with names, tokens and numbers whole. Where it is too wide, lists of tokens are
shortened to whole tokens, texts are wrapped between words, and the columns that matter least are left out
and named below the table.

>>> import pandas as pd
>>> frame = pd.DataFrame({"name": ["L0N1"], "push": [0.12345], "answer_tokens": ["␣golf ␣chess"]})
>>> print(write_table(frame, width=20))
             answer
name   push  tokens
───────────────────
L0N1  0.123  ␣golf
"""

import math
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len

if TYPE_CHECKING:
    import pandas as pd

GAP = 2
# Wider than any table: the width of what is piped.
UNLIMITED = 400
# A text longer than this may be wrapped; a shorter one stays on its line.
PROSE = 24
# A list of tokens says little with fewer than these, if there is room for them.
TOKENS = 2
# The columns to leave out first, the least needed at the front; after these, from the right.
LESS = (
    "vocab_kurtosis", "vocab_skew", "vocab_variance", "vocab_mean", "null_space", "gate_cosine",
    "gate_bias", "gate_norm", "question_bias", "question_norm", "answer_norm",
    "id", "step", "share", "log_probability_effect", "gate_score", "score", "strongest_example",
    "mean_activation", "contrast_activation", "set_to", "position_embedding", "gate_tokens",
    "question_tokens", "carried", "through", "position", "subject",
)  # fmt: skip
ALWAYS = frozenset(
    ("name", "part", "token", "grade", "push", "push_through_attention", "effect", "difference")
)
LISTS = frozenset(("promotes", "suppresses", "asks", "says"))
# What turns the direction of writing, also of what stands after it.
_TURNS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def is_missing(value: Any) -> bool:
    """Say whether a cell is empty: None, pandas's NA, or not a number."""
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or type(value).__name__ == "NAType"  # so that a card needs no pandas


def is_null(value: Any) -> bool:
    """Say whether JSON has no word for a value but null: it is missing or infinite."""
    return is_missing(value) or (isinstance(value, float) and math.isinf(value))


def escape_bidi(text: str) -> str:
    """Write out characters that turn the direction of writing, as tokens are shown: `⟨U+202E⟩`."""
    return _TURNS.sub(lambda match: f"⟨U+{ord(match[0]):04X}⟩", text)


def format_value(value: Any) -> str:
    """Show a value in a table: floats to four significant digits, lists joined by spaces."""
    if is_missing(value):
        return ""
    if isinstance(value, float):
        value += 0.0  # no "-0"
        return f"{value:.4g}" if abs(value) < 1 else f"{value:.3f}"
    is_list = isinstance(value, list | tuple)
    return escape_bidi(" ".join(map(str, value)) if is_list else str(value))


def format_short(value: Any) -> str:
    """Show a value in text: floats to three significant digits, large counts with commas."""
    if isinstance(value, bool) or is_missing(value):
        return format_value(value)
    if isinstance(value, float):
        if not math.isfinite(value) or value == 0:
            return f"{value + 0.0:g}"
        if abs(value) >= 999.5:
            return f"{value:,.0f}"
        return f"{value:#.3g}".removesuffix(".")
    if isinstance(value, int) and abs(value) >= 10_000:
        return f"{value:,}"
    return format_value(value)


@dataclass(frozen=True)
class Column:
    """A column's head and cells, and how many of its tokens or columns of text are shown."""

    name: str
    cells: tuple[str, ...]
    is_number: bool
    room: int = sys.maxsize
    has_whole_head: bool = False

    @property
    def is_list(self) -> bool:
        """Whether the cells are lists of tokens, which may be shortened."""
        return self.name.endswith("_tokens") or self.name in LISTS

    @cached_property
    def is_prose(self) -> bool:
        """Whether the cells are texts, which may be wrapped between words."""
        return not self.is_list and self._longest > PROSE and any(" " in c for c in self.cells)

    @cached_property
    def _longest(self) -> int:
        return max(map(cell_len, self.cells), default=0)

    @cached_property
    def head(self) -> list[str]:
        """The column's name, in lines of the column's width."""
        words = self.name.replace("_", " ")
        if self.has_whole_head:
            return [words]
        return wrap(words, max(self._inner, *map(cell_len, words.split(" "))))

    @cached_property
    def _inner(self) -> int:
        return max((cell_len(line) for cell in self.cells for line in self.lines(cell)), default=0)

    @cached_property
    def width(self) -> int:
        return max(self._inner, *map(cell_len, self.head))

    def lines(self, cell: str) -> list[str]:
        """Write a cell: its first tokens, or its text wrapped, or as it is."""
        if self.is_list:
            return [" ".join(cell.split(" ")[: self.room])]
        return wrap(cell, self.room) if self.is_prose else [cell]

    def least(self, tokens: int) -> "Column":
        """Shorten the column as far as it may be."""
        return replace(self, room=tokens if self.is_list else PROSE)

    @cached_property
    def _most(self) -> int:
        if self.is_list:
            return max((cell.count(" ") + 1 for cell in self.cells), default=0)
        return self._longest if self.is_prose else 0

    def wider(self) -> "Column | None":
        """Show one more token or column of text, or say that all is shown."""
        return replace(self, room=self.room + 1) if self.room < self._most else None


def find_width() -> int:
    """Return the width to print in: the terminal's, COLUMNS, or unlimited where there is neither."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit():
        return shutil.get_terminal_size().columns
    return UNLIMITED


def write_table(frame: "pd.DataFrame", *, width: int) -> str:
    """Write a table in at most `width` columns of text, if names and numbers allow it."""
    columns = list(_read(frame))
    shown = _choose(columns, width)
    names = {column.name for column in shown}
    missing = [column.name.replace("_", " ") for column in columns if column.name not in names]
    note = wrap(f"not shown for lack of room: {', '.join(missing)}", width) if missing else []
    return "\n".join([_write(shown), *note])


def _write(shown: Sequence[Column]) -> str:
    """Write columns side by side under their heads."""
    tall = max((len(column.head) for column in shown), default=0)
    heads = [[""] * (tall - len(column.head)) + column.head for column in shown]
    lines = [*_rows(heads, shown), "─" * _total(shown)]
    for cells in zip(*(column.cells for column in shown), strict=True):
        lines += _rows([c.lines(cell) for c, cell in zip(shown, cells, strict=True)], shown)
    return "\n".join(lines)


def write_grid(frame: "pd.DataFrame", *, width: int) -> str:
    """Write a table with every column: as many as fit, the others below, the first repeated."""
    columns = list(_read(frame))
    first, blocks = columns[0], [[columns[0]]]
    for column in columns[1:]:
        if len(blocks[-1]) > 1 and _total([*blocks[-1], column]) > width:
            blocks.append([first])
        blocks[-1].append(column)
    return "\n\n".join(_write(block) for block in blocks)


def wrap(text: str, width: int) -> list[str]:
    """Break a text into lines between words; a word longer than a line has its own."""
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if lines[-1] and cell_len(joined) > width:
            lines.append(word)
        else:
            lines[-1] = joined
    return lines


def _read(frame: "pd.DataFrame") -> Iterator[Column]:
    import pandas as pd

    for number, name in enumerate(frame.columns):
        values = frame.iloc[:, number]
        is_number = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
        yield Column(str(name), tuple(map(format_short, values)), is_number)


def _choose(columns: list[Column], width: int) -> list[Column]:
    """Leave columns out until the rest fits, then share out the room that is left."""
    for tried in ([replace(column, has_whole_head=True) for column in columns], columns):
        if _total(tried) <= width:
            return tried
    names = [column.name for column in columns[1:] if column.name not in ALWAYS]
    lists = [column.name for column in columns if column.is_list]
    others = [name for name in reversed(names) if name not in LESS and name not in lists]
    less = [name for name in LESS if name in names]
    shown = _leave_out([column.least(TOKENS) for column in columns], less, width)
    if _total(shown) > width:
        shown = _leave_out([column.least(1) for column in shown], others, width)
    while True:
        # Texts grow first, then lists, the shortest list first, of equals the last: it has the answer.
        order = sorted(range(len(shown)), key=lambda n: (shown[n].is_list, shown[n].room, -n))
        wider = ([*shown[:n], more, *shown[n + 1 :]] for n in order if (more := shown[n].wider()))
        fitting = next((tried for tried in wider if _total(tried) <= width), None)
        if fitting is None:
            return shown
        shown = fitting


def _leave_out(columns: list[Column], names: Sequence[str], width: int) -> list[Column]:
    for name in names:
        if _total(columns) <= width:
            break
        columns = [column for column in columns if column.name != name]
    return columns


def _total(columns: Sequence[Column]) -> int:
    return sum(column.width for column in columns) + GAP * (len(columns) - 1)


def _rows(blocks: Sequence[Sequence[str]], columns: Sequence[Column]) -> Iterator[str]:
    """Write cells of several lines side by side."""
    for cells in zip_longest(*blocks, fillvalue=""):
        padded = []
        for cell, column in zip(cells, columns, strict=True):
            blank = " " * (column.width - cell_len(cell))
            padded.append(blank + cell if column.is_number else cell + blank)
        yield (" " * GAP).join(padded).rstrip()


def lay_out_map(table: "pd.DataFrame", values: str = "effect") -> "pd.DataFrame":
    """Lay the map out with a row per layer and a column per position, the token above."""
    import pandas as pd

    grid = table.pivot(index="layer", columns="position", values=values)
    tokens = table.drop_duplicates("position").set_index("position").token
    frame = grid.map("{:+.2f}".format).reset_index(drop=True)
    frame.insert(0, "layer", [f"L{layer}" for layer in grid.index])
    frame.columns = pd.Index(["", *map(str, tokens[grid.columns])])  # some tokens stand twice
    return frame

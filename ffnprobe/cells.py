"""How a value is written where people read it: in a terminal, a card, a page, Markdown."""

import math
import re
from typing import Any

# What turns the direction of writing, also of what stands after it.
_TURNS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def is_missing(value: Any) -> bool:
    """Say whether a cell is empty: None, pandas's NA, or not a number."""
    # NA is known by its name, so that a card needs no pandas.
    is_na = type(value).__name__ == "NAType"
    return value is None or is_na or (isinstance(value, float) and math.isnan(value))


def is_null(value: Any) -> bool:
    """Say whether JSON has no word for a value but null: it is missing or infinite."""
    return is_missing(value) or (isinstance(value, float) and math.isinf(value))


def spell_turns(text: str) -> str:
    """Write out characters that turn the direction of writing, as tokens are shown: `⟨U+202E⟩`."""
    return _TURNS.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


def format_value(value: Any) -> str:
    """Show a value in a table: floats to four significant digits, lists joined by spaces."""
    if is_missing(value):
        return ""
    if isinstance(value, float):
        value += 0.0  # no "-0"
        return f"{value:.4g}" if abs(value) < 1 else f"{value:.3f}"
    return spell_turns(
        " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    )


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

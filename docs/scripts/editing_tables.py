"""Write the tables of docs/editing.md from the stores of analyses/measured/edit_compared.py.

    python docs/scripts/editing_tables.py "SmolLM2 135M=smollm2.jsonl" "pocket=pocket.jsonl"

The text around the tables is written by hand: read it again after this.
"""

import math
import sys
from pathlib import Path

import pandas as pd

from analyses.measured.edit_compared import summarise

PAGE = Path(__file__).parents[1] / "editing.md"
BEGIN, END = "<!-- tables: docs/scripts/editing_tables.py -->", "<!-- end of tables -->"
MEASURES = ("efficacy", "paraphrases", "neighbourhood", "score")


def write_model(name: str, rows: pd.DataFrame) -> str:
    """Write one model's tables: single edits, and edits in turn."""
    parts = []
    for part, table in summarise(rows).items():
        titles = {
            "alone": ("facts", "passes", "one fact at a time", "the cost in bare forward passes"),
            "in turn": ("edits", "known", "edits in turn", "known: of the table's other facts"),
        }
        first, last, title, meaning = titles[part]
        kept = [last] if last in table else []
        title += f"; {meaning}" if kept else ""
        head = ["method", first, *MEASURES, *kept]
        parts += [f"**{name}**, {title}:", "", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
        for row in table.itertuples():
            figures = [_write(one, getattr(row, one)) for one in MEASURES]
            ends = [_write(last, getattr(row, last)) for last in kept]
            cells = [str(row.method), f"{int(getattr(row, first))}", *figures, *ends]
            parts.append(f"| {' | '.join(cells)} |")
        parts.append("")
    return "\n".join(parts)


def _write(column: str, value: float) -> str:
    if math.isnan(value):
        return "–"
    return f"{value:.0f}" if column == "passes" else f"{100 * value:.1f}"


def main(named: list[str]) -> None:
    """Replace what stands between the marks."""
    written = []
    for one in named:
        name, _, path = one.partition("=")
        written.append(write_model(name, pd.read_json(path, lines=True)))
    page = PAGE.read_text(encoding="utf-8")
    before, after = page.partition(BEGIN)[0], page.partition(END)[2]
    tables = "\n".join(written)
    PAGE.write_text(f"{before}{BEGIN}\n{tables}{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

"""The table of docs/performance.md, written from a run of the benchmark between two marks.

Rooms that a run leaves out keep the rows of an earlier run, each with its date.
"""

import os
import platform
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

START, END = "<!-- table: analyses/benchmark.py -->", "<!-- end of table -->"
LIBRARIES = ("torch", "transformers", "transformer-lens", "pandas", "plotly")
Row = tuple[str, str, float, str]  # room, what, ratio, goal


def write_page(path: Path, rows: Sequence[Row]) -> None:
    """Put the rows of these rooms, the day and the versions between the marks of a page."""
    text = path.read_text(encoding="utf-8")
    before, rest = text.split(START)
    table, after = rest.split(END)
    measured = {room for room, *_ in rows}
    kept = [
        line
        for line in table.splitlines()
        if (found := re.match(r"\| (\w+) \|", line)) and found[1] not in (*measured, "part")
    ]
    day = datetime.now(UTC).date().isoformat()
    new = [
        f"| {room} | {name} | {ratio:.3g} | {goal} | {day} |" for room, name, ratio, goal in rows
    ]
    known = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    lines = [
        f"{os.cpu_count()} cores, no GPU; Python {platform.python_version()}, {known}.",
        "",
        "| part | what | ratio | goal | measured |",
        "|---|---|---|---|---|",
        *sorted([*kept, *new], key=lambda line: line.split("|")[1]),
    ]
    path.write_text(f"{before}{START}\n" + "\n".join(lines) + f"\n{END}{after}", encoding="utf-8")

"""What scoring a table of facts costs on a model of GPT-2 small's shape, against one fact at a time.

Question: how much faster are 200 facts scored together than by 200 calls of `run` and `attribute`,
and does memory grow with their number? Method: the same prompts of random tokens, in relations of
ten answers, everything warm, in one process; its peak memory over 200 facts and over 600.
"""

import random
from collections.abc import Callable
from pathlib import Path

import ffnprobe as fp
from analyses.measured.benchmarks.reading import seconds
from analyses.measured.benchmarks.sizes import Size

LENGTHS = (8, 9, 10, 11, 12)


def measure(folder: Path, size: Size) -> list[tuple[str, float, str]]:
    """Return each ratio with its name and its goal."""
    model = fp.load(folder, device="cpu")
    count, many = size.facts, 3 * size.facts
    rows = _draw_rows(many)
    few, single = rows[:count], rows[: max(1, count // 4)]
    fp.attribute(fp.run(model, rows[0].prompt), rows[0].answer)
    fp.score(model, single)
    together = seconds(lambda: fp.score(model, few)) / count
    apart = seconds(lambda: [fp.attribute(fp.run(model, r.prompt), r.answer) for r in single])
    less, more = _peak(lambda: fp.score(model, few)), _peak(lambda: fp.score(model, rows))
    return [
        (
            f"run + attribute to one of {count} facts scored",
            apart / len(single) / together,
            "at least 3",
        ),
        (f"peak memory over {many} facts to that over {count}", more / less, "at most 1.1"),
    ]


def _draw_rows(count: int) -> list[fp.FactRow]:
    """Draw prompts of single letters, ten facts a relation."""
    draw = random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    return [
        fp.FactRow(
            "".join(draw.choice(letters) for _ in range(LENGTHS[number % len(LENGTHS)])),
            draw.choice(letters),
            relation=f"relation {number // 10}",
            subject=str(number),
        )
        for number in range(count)
    ]


def _peak(call: Callable[[], object]) -> int:
    """Return the most memory the process holds during a call, in kB, whatever it held before."""
    Path("/proc/self/clear_refs").write_text("5")
    call()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0])

"""What does ffnprobe cost? Ratios measured in one run on a model of GPT-2 small's shape.

Method: a folder with GPT-2 small's configuration, seeded random weights and a byte-level tokenizer
is written to a temporary folder (or given with --model); each room's measure runs on it, against the
bare matrix product, the bare forward pass, TransformerLens, or a hook loop, in the same process.
`families` does so on a gated model of SmolLM2's shape, which it writes itself.

    python analyses/benchmark.py [--model FOLDER] [--only reading] [--short] [--page docs/performance.md]

`--short` runs every part on tiny models, once: its ratios mean nothing, it only shows that all parts run.
"""

import argparse
import importlib
import os
import sys
import tempfile
from pathlib import Path

from analyses.measured.benchmarks.folders import write_folder
from analyses.measured.benchmarks.page import write_page
from analyses.measured.benchmarks.sizes import FULL, SHORT

ROOMS = (
    "cold",
    "models",
    "reading",
    "tracing",
    "interventions",
    "corpora",
    "facts",
    "families",
    "circuits",
    "evidence",
    "threads",
    "explorer",
)


def main(argv: list[str] | None = None) -> None:
    """Print each ratio and its goal."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, help="a GPT-2-small-shaped folder")
    parser.add_argument("--only", choices=ROOMS, action="append")
    parser.add_argument("--short", action="store_true", help="tiny models, every part once")
    parser.add_argument("--page", type=Path, help="also put the table into docs/performance.md")
    options = parser.parse_args(argv)
    rows = []
    size = SHORT if options.short else FULL
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryDirectory() as cache:
        # Models that exist for a run of the benchmark leave no record in the user's cache.
        os.environ["FFNPROBE_CACHE"] = cache
        folder = options.model or write_folder(Path(scratch), size.plain)
        for room in options.only or ROOMS:
            module = importlib.import_module(f"analyses.measured.benchmarks.{room}")
            for name, ratio, goal in module.measure(folder, size):
                print(f"{room:14} {ratio:9.3f}  goal {goal:14} {name}", flush=True)
                rows.append((room, name, ratio, goal))
    if options.page:
        write_page(options.page, rows)


if __name__ == "__main__":
    main(sys.argv[1:])

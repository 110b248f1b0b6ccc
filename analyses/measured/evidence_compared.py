"""Which way of choosing neurons finds those that a fact needs, and not every fact like it?

Method: for every known fact of a table, seven rankings of neurons: contrast with paths, removal to the
mean, direct push, gradient × difference, integrated gradients (knowledge neurons), activation size,
random. The first k of each are removed at once. Counted: facts whose answer is no longer first, how far
its log-probability falls, and both for the contrast prompts' own answers when the same neurons are set
to the same values there. Removed is measured twice: to the contrast means and to the usual replacement
(the model's means, or zero). What it shows is in docs/evidence.md.

    python analyses/measured/evidence_compared.py pocket --facts 100 --store compared.jsonl --html compared.html
    python analyses/measured/evidence_compared.py FOLDER --model smollm2 --facts 60 --store smollm2.jsonl

A store keeps each fact as it is measured; with the same store the rest is measured.
"""

import json
from pathlib import Path

import pandas as pd

import ffnprobe as fp
from analyses.measured.evidence.facts import find_known
from analyses.measured.evidence.figures import draw
from analyses.measured.evidence.removals import compare
from analyses.script import new_parser, run_script
from ffnprobe.views.saving import save_figures
from ffnprobe.views.terminal import print_tables


def main(argv: list[str] | None = None) -> None:
    parser = new_parser(__doc__, model=True)
    parser.add_argument("facts_from", metavar="FACTS", help="pocket, a file or a folder of facts")
    parser.add_argument("--facts", type=int, default=60, help="how many known facts")
    parser.add_argument("--contrasts", type=int, default=6, help="contrast prompts a fact, at most")
    parser.add_argument("--seed", type=int, default=0, help="of the order of the facts")
    parser.add_argument("--store", type=Path, help="keep every fact's rows in this .jsonl file")
    options = parser.parse_args(argv)
    model = fp.load(options.model)
    asked = {
        "fingerprint": model.fingerprint, "facts_from": options.facts_from,
        "contrasts": options.contrasts, "seed": options.seed,
    }  # fmt: skip
    rows = _read(options.store, asked)
    done = {str(row["prompt"]) for row in rows}
    known = find_known(
        model, options.facts_from, seed=options.seed, contrasts=options.contrasts, done=done
    )
    for _, fact in zip(range(options.facts), known, strict=False):
        if fact is None:
            continue
        new = compare(fact)
        rows += new
        if options.store is not None:
            with options.store.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(asked | row, ensure_ascii=False) + "\n" for row in new)
    table = summarise(pd.DataFrame(rows))
    for removed in ("contrast", "usual"):
        title = f"{model.name}, {table.facts.max()} facts, removed to the {removed} mean"
        shown = table[
            [
                "method",
                "k",
                "facts",
                *(c for c in map(str, table) if c.startswith(removed)),
                "seconds",
            ]
        ]
        print_tables({title: shown})
    if options.html:
        figures = [draw(table, model.name, removed) for removed in ("contrast", "usual")]
        save_figures(figures, options.html, title="Evidence compared")


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """Average over facts, by method and k."""
    groups = rows.groupby(["method", "k"], sort=False)
    table = groups.mean(numeric_only=True).reset_index()
    table.insert(2, "facts", groups.size().to_numpy())
    return table


def _read(store: Path | None, asked: dict[str, object]) -> list[dict[str, object]]:
    """Read the rows that a store has of the same question."""
    if store is None or not store.exists():
        return []
    rows = map(json.loads, store.read_text(encoding="utf-8").splitlines())
    kept = [row for row in rows if all(row[name] == value for name, value in asked.items())]
    return [{k: v for k, v in row.items() if k not in asked} for row in kept]


if __name__ == "__main__":
    run_script(main)

"""Do the candidates that the gradient proposes hold the neurons that removing every one would list?

Method: prompts of a table of facts that the model knows are explained twice, as `explain` does and with
`exact=True`. Counted: prompts with the same A neurons, the same list, the same grades; how deep in the
rankings by push and by estimate (the better of both) the listed neurons are; how many neurons were
removed; how well estimates and effects of the candidates agree. What it shows is in docs/evidence.md.

    python analyses/candidates_measured.py pocket --facts 100 --store pocket.jsonl
    python analyses/candidates_measured.py FOLDER --model smollm2 --facts 20 --store smollm2.jsonl

A store keeps each prompt as it is measured; with the same store the rest is measured.
"""

import json
from pathlib import Path

import pandas as pd

import ffnprobe as fp
from evidence.candidates import compare_ways
from evidence.facts import find_known
from ffnprobe.views.terminal.printing import print_tables
from script import new_parser, run_script


def main(argv: list[str] | None = None) -> None:
    parser = new_parser(__doc__, model=True)
    parser.add_argument("facts_from", metavar="FACTS", help="pocket, a file or a folder of facts")
    parser.add_argument("--facts", type=int, default=100, help="how many known facts")
    parser.add_argument("--contrast", action="store_true", help="with contrast prompts")
    parser.add_argument("--store", type=Path, help="keep every prompt's row in this .jsonl file")
    options = parser.parse_args(argv)
    model = fp.load(options.model)
    rows = []
    if options.store is not None and options.store.exists():
        rows = [json.loads(line) for line in options.store.read_text("utf-8").splitlines()]
    done = {row["prompt"] for row in rows}
    known = find_known(model, options.facts_from, seed=0, contrasts=6, done=done)
    for _, fact in zip(range(options.facts), known, strict=False):
        if fact is None:
            continue
        contrast = {"contrast": fact.contrast} if options.contrast else {}
        rows.append(compare_ways(model, str(fact.trace.prompt), fact.token, **contrast))
        if options.store is not None:
            with options.store.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[-1], ensure_ascii=False) + "\n")
    print_tables({f"{model.name}, {len(rows)} prompts": summarise(pd.DataFrame(rows))})


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """Count what is the same; the middle, ninety in a hundred and the most of the rest."""
    same = [
        (name, float(rows[name].sum()), None, None)
        for name in map(str, rows)
        if name.startswith("same")
    ]
    figures = ["a", "depth", "depth_of_a", "removed", "looked_at", "pearson", "spearman"]
    spread = [
        (name, *(float(rows[name].quantile(share)) for share in (0.5, 0.9, 1.0)))
        for name in figures
    ]
    return pd.DataFrame([*same, *spread], columns=["figure", "count or median", "90 %", "most"])


if __name__ == "__main__":
    run_script(main)

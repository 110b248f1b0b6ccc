"""Which method edits facts best, one fact alone and many in a row?

Method: facts of a table that the model knows each get another answer of their relation, by ROME, MEMIT
and AlphaEdit. Alone: each edit starts from the original model. In turn: each edit starts from the edit
before, and all edits so far are judged together. Counted as published: efficacy, paraphrases,
neighbourhood and S, their harmonic mean; alone also the cost in bare forward passes of the same prompt,
in one process. What it shows is in docs/editing.md.

    python analyses/measured/edit_compared.py pocket --facts 200 --store pocket.jsonl --html edits.html
    python analyses/measured/edit_compared.py FOLDER --model smollm2 --keys keys --facts 40 --turns 30 --store s.jsonl

A store keeps each fact, and each method's sequence, as it is measured; the same command measures the rest.
"""

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd

import ffnprobe as fp
from analyses.measured.editing.facts import find_changes
from analyses.measured.editing.figures import draw_alone, draw_sequence
from analyses.measured.editing.runs import KINDS, METHODS, edit_alone, edit_in_turn
from analyses.script import new_parser, run_script
from ffnprobe.editing.key_moments import open_keys
from ffnprobe.views.saving import save_figures
from ffnprobe.views.terminal import print_tables

STOPS = (1, 3, 10, 30, 100)


def main(argv: list[str] | None = None) -> None:
    """Edit every fact alone and the first of them in turn, by each method."""
    parser = new_parser(__doc__, model=True)
    parser.add_argument("facts_from", metavar="FACTS", help="pocket, a file or a folder of facts")
    parser.add_argument("--facts", type=int, default=200, help="how many known facts, alone")
    parser.add_argument("--turns", type=int, default=100, help="how many of them in turn")
    parser.add_argument("--layer", type=int, help="the layer to change, else by the map of effects")
    parser.add_argument(
        "--keys", type=Path, help="a store of scan_keys, if the model is not pocket"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the facts and their new answers")
    parser.add_argument("--store", type=Path, help="keep what is measured in this .jsonl file")
    options = parser.parse_args(argv)
    model = fp.load(options.model)
    scan = None if options.keys is None else open_keys(options.keys, remedy="fp.scan_keys")
    asked = {
        "fingerprint": model.fingerprint, "facts_from": options.facts_from, "seed": options.seed,
        "layer": options.layer,
    }  # fmt: skip
    rows = _read(options.store, asked)
    done = {(row["part"], row["method"], row["number"]) for row in rows}
    many = max(options.facts, options.turns)
    changes = find_changes(model, options.facts_from, many=many, seed=options.seed)

    def keep(row: dict[str, Any]) -> None:
        rows.append(row)
        if options.store is not None:
            with options.store.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asked | row, ensure_ascii=False) + "\n")

    for number, change in enumerate(changes[: options.facts]):
        for method in METHODS:
            if ("alone", method, number) not in done:
                told = edit_alone(model, change, method, scan, options.layer)
                keep({"part": "alone", "method": method, "number": number, **told})
    stops = [stop for stop in STOPS if stop <= options.turns]
    table = options.facts_from if model.source.kind == "embedded" else None
    for method in METHODS:
        if stops and ("turn", method, stops[-1]) not in done:
            turns = changes[: stops[-1]]
            for told in edit_in_turn(model, turns, method, scan, options.layer, stops, table):
                keep({"part": "turn", "method": method, "number": told["edits"], **told})
    tables = summarise(pd.DataFrame(rows))
    print_tables(tables, title=f"{model.name}, facts from {options.facts_from}")
    if options.html:
        drawn = {"alone": draw_alone, "in turn": draw_sequence}
        figures = [drawn[name](one, model.name) for name, one in tables.items()]
        save_figures(figures, options.html, title="Edits compared")


def summarise(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Take shares over all cases, alone by method, in turn by method and number of edits."""
    rows = rows.drop_duplicates(["part", "method", "number"], keep="last")
    found = {}
    for part, name, keys in (
        ("alone", "alone", ["method"]),
        ("turn", "in turn", ["method", "edits"]),
    ):
        own = rows[rows.part == part]
        if not len(own):
            continue
        groups = own.groupby(keys, sort=False)
        table = pd.DataFrame({
            one: groups[one].sum() / groups[f"{one}_cases"].sum() for one in KINDS
        })  # fmt: skip
        table["score"] = [_harmonic(list(row)) for row in table.to_numpy()]
        if part == "alone":
            table.insert(0, "facts", groups.size())
            table["passes"] = groups.passes.median()
        else:
            known = [one for one in ("known", "kl") if one in own]
            table = table.join(groups[known].first())
        found[name] = table.reset_index()
    return found


def _harmonic(shares: list[float]) -> float:
    """Return the harmonic mean; NaN where a share has no cases."""
    if any(math.isnan(share) for share in shares):
        return math.nan
    return len(shares) / sum(1 / share for share in shares) if all(shares) else 0.0


def _read(store: Path | None, asked: dict[str, Any]) -> list[dict[str, Any]]:
    """Read the rows that were measured with the same model, facts and settings."""
    if store is None or not store.is_file():
        return []
    rows = [json.loads(line) for line in store.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if all(row.get(name) == value for name, value in asked.items())]


if __name__ == "__main__":
    run_script(main)

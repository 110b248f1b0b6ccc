"""How small is the circuit of subject–verb agreement, in neurons, and is it the same for every sentence?

Method: pairs of sentences that differ in the number of the subject ("The uncle …" / "The uncles …"), which
the model gets right. The circuit of each is found with the other as its contrast, and tested: the size at
which 80 % of the verbs' difference is recovered by the circuit alone, and the size at which 80 % is gone
without it; beside circuits by other rules of influence, by gradient, push and activation, and random ones.
Neurons are kept by their influence whatever its sign (`both`), or only those toward the answer (`toward`).
What it shows is in docs/circuits.md.

    python analyses/measured/agreement.py FOLDER --model smollm2 --pairs 100 --store smollm2.jsonl

FOLDER holds the test files of saprmarks/feature-circuits. A store keeps each pair as it is measured; with
the same store the rest is measured.
"""

import json
from argparse import ArgumentParser
from pathlib import Path

import pandas as pd

import ffnprobe as fp
from analyses.measured.circuits.measure import count_beaten, measure, share_neurons, summarise
from analyses.measured.circuits.pairs import find_known, read_pairs
from analyses.script import run_script
from ffnprobe.views.terminal import print_tables


def main(argv: list[str] | None = None) -> None:
    parser = ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="the folder of pairs")
    parser.add_argument("--model", default="smollm2", help="a model's name or folder")
    parser.add_argument("--pairs", type=int, default=100, help="how many pairs")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the order of pairs, random circuits"
    )
    parser.add_argument("--store", type=Path, help="keep every pair's rows in this .jsonl file")
    options = parser.parse_args(argv)
    model = fp.load(options.model)
    asked = {"fingerprint": model.fingerprint, "seed": options.seed}
    rows = read_store(options.store, asked)
    done = list(dict.fromkeys(row["prompt"] for row in rows))[: options.pairs]
    pairs = [
        pair for pair in read_pairs(options.folder, seed=options.seed) if pair.prompt not in done
    ]
    known = find_known(model, pairs)
    for _, (pair, contrast) in zip(range(options.pairs - len(done)), known, strict=False):
        new = [asked | row for row in measure(pair, contrast, seed=options.seed)]
        rows += new
        if options.store is not None:
            with options.store.open("a", encoding="utf-8") as file:
                file.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in new))
    table = pd.DataFrame(rows)
    shared = share_neurons(table)
    most = shared.groupby("sign", sort=False).head(10)
    print_tables(
        {
            f"{model.name}: medians over {table.prompt.nunique()} pairs": summarise(table),
            "pairs where the circuit recovers a larger area": count_beaten(table, "recovered"),
            "pairs where the circuit takes a larger area away": count_beaten(table, "gone"),
            "neurons in most circuits": most,
        }
    )
    half = shared[shared.pairs * 2 >= shared.of].groupby("sign", sort=False).size().to_dict()
    print(f"neurons in at least half of the circuits: {half}; in any: {len(shared.name.unique())}")
    print(f"worst node: {table.remainder.max():.1e} from closing")


def read_store(store: Path | None, asked: dict[str, object]) -> list[dict[str, object]]:
    """Read the rows that a store has of the same question; a line cut off in writing is left out."""
    if store is None or not store.exists():
        return []
    rows = []
    for line in store.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return [row for row in rows if all(row.get(name) == value for name, value in asked.items())]


if __name__ == "__main__":
    run_script(main)

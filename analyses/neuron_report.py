"""What kinds of neuron does a model have, and which are the most selective?

Method: survey every neuron from the weights alone; count the kinds layer by layer; list those whose
answers single out a few tokens most sharply (kurtosis over the vocabulary), and, for tokens given,
those that promote them, ranked by z and, for comparison, by dot product, where hub neurons come first.

Found on pocket: 10 of 5,376 neurons have a kind by the usual thresholds, 5 partition and 5 entropy. The
most selective answers promote the facts of one country (␣dong ␣Hanoi ␣Vietnamese). For ␣basketball L3N361 is
first by z and second by dot product, where L1N505 leads; among five, the two rankings share this one.

    python analyses/neuron_report.py " basketball" --html neurons.html --table neurons.csv
"""

from pathlib import Path

import pandas as pd

import ffnprobe as fp
from analyses.script import new_parser, run_script
from ffnprobe.views.saving import check_target
from ffnprobe.views.terminal import print_tables

SHOWN = ["name", "kind", "promotes", "suppresses", "vocab_skew", "vocab_kurtosis", "null_space"]


def main(argv: list[str] | None = None) -> None:
    parser = new_parser(__doc__, model=True)
    parser.add_argument("tokens", nargs="*", help='who promotes these? e.g. " basketball"')
    parser.add_argument("--layers", help="3, 3-5 or 0,3-5 (default: all)")
    parser.add_argument("--top", type=int, default=10, help="how many neurons are listed")
    parser.add_argument("--table", type=Path, help="the whole survey: .csv, .json, .parquet, .md")
    options = parser.parse_args(argv)
    if options.table:
        check_target(options.table)
    model = fp.load(options.model)
    neurons = fp.survey(model, layers=options.layers)
    kinds = pd.crosstab(neurons.table.layer, neurons.table.kind).reset_index()
    selective = neurons.top(options.top)
    tables = {
        f"kinds of neuron in {model.name}": kinds,
        "the most selective answers": selective[SHOWN],
    }
    for token in options.tokens:
        for rank in ("z", "dot"):
            found = fp.search(model, token, rank=rank, layers=options.layers, top=options.top)
            tables[f"who promotes {token!r}, by {rank}"] = found.table.drop(
                columns=["layer", "neuron"]
            )
    print_tables(tables)
    for path in (options.table, options.html):
        if path:
            fp.save(neurons, path)


if __name__ == "__main__":
    run_script(main)

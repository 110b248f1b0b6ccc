"""What does an FFN do to a row, step by step?

Method: a 2×3 input goes through linear, activation, linear; every stage is printed and drawn. Then
row 0 is changed to see whether row 1 changes, and the weights go from the identity to their full values
to see how far the output moves from the input.

Found: rows never see each other (row 1 changes by exactly 0). With identity weights only the biases
change a row, and ReLU sets to zero what the first bias makes negative. With the mixed weights ReLU sets
half of the scores to zero, and each output is the sum of the answers of the other neurons.

    python analyses/toy_ffn.py --html toy.html
    python analyses/toy_ffn.py --weights mine.json --activation swiglu
"""

from dataclasses import replace
from pathlib import Path

import pandas as pd

from analyses.lab.activations import NAMES
from analyses.lab.figures import plot_departure, plot_toy_stages
from analyses.lab.toy import CASES, read_toy, table_departure
from analyses.script import new_parser, run_script
from ffnprobe.views.saving import save_figures
from ffnprobe.views.terminal import print_tables


def main(argv: list[str] | None = None) -> None:
    parser = new_parser(__doc__)
    parser.add_argument("--case", choices=CASES, help="one of the built-in cases (default: all)")
    parser.add_argument("--weights", type=Path, help="JSON: input, up, up_bias, down, down_bias")
    parser.add_argument("--activation", choices=NAMES, help="default: relu, or what the file says")
    options = parser.parse_args(argv)
    chosen = {name: CASES[name] for name in ([options.case] if options.case else CASES)}
    if options.weights:
        chosen = {options.weights.name: read_toy(options.weights, activation=options.activation)}
    figures = []
    for name, (ffn, rows) in chosen.items():
        ffn = replace(ffn, activation=options.activation or ffn.activation)
        stages = ffn.stages(rows)
        changed = rows.clone()
        changed[0] += 1.0
        other = ffn.stages(changed).named()
        alone = pd.DataFrame(
            {"stage": stage, "row": row, "largest_change": change}
            for stage, values in stages.named().items()
            for row, change in enumerate((other[stage] - values).abs().amax(dim=-1).tolist())
        )
        tables = {
            f"{name}: every stage ({ffn.activation})": stages.table(),
            f"{name}: neurons": ffn.table(),
            f"{name}: what changes if row 0 grows by 1": alone,
        }
        note = f"The case {name}, {ffn.activation}; one colour scale for all stages."
        figures.append(plot_toy_stages(stages, note=note))
        if ffn.up.shape[0] == ffn.up.shape[1]:
            departure = table_departure(ffn, rows)
            tables[f"{name}: from identity to full weights"] = departure
            figures.append(plot_departure(departure, note=note))
        print_tables(tables)
    if options.html:
        save_figures(figures, options.html, title="A toy FFN, step by step")


if __name__ == "__main__":
    run_script(main)

"""Where do activation functions dip below zero, and how many scores of a real model are there?

Method: curves and derivatives of ReLU, GELU (both forms) and Swish, SwiGLU as a surface; minima and
bumps to the last digit; then every score of a model over texts (pocket: its own sentences) is
counted: below zero, and in the bump of the model's activation function.

Found: in pocket's middle layers, trained to be sparse, nearly all scores (99.8 % and more) are far below
zero; in the others 82–87 % are below zero and 38–53 % in the bump, where a neuron with a negative score
still adds to the stream.

    python analyses/activation_functions.py --html activations.html
    python analyses/activation_functions.py --model gpt2 --scan scan/
"""

import pandas as pd

import ffnprobe as fp
from analyses.lab.activations import CURVES, find_bump
from analyses.lab.figures import plot_curves, plot_gate_surface, plot_scores
from analyses.lab.tallies import table_scan, tally_scores
from analyses.script import new_parser, run_script
from ffnprobe.corpora.scans import Scan
from ffnprobe.models import pocket
from ffnprobe.views.saving import save_figures
from ffnprobe.views.terminal import print_tables


def main(argv: list[str] | None = None) -> None:
    parser = new_parser(__doc__, quick="count 67 texts", model=True)
    parser.add_argument("--scan", help="also the shares of a scan's store of this model")
    options = parser.parse_args(argv)
    bumps = {name: bump for name in CURVES if (bump := find_bump(name)) is not None}
    minima = pd.DataFrame(
        {"function": name, "minimum": f"{bump.depth:.6f}", "at": f"{bump.at:.6f}",
         "bump_from": f"{bump.low:.6f}", "bump_to": f"{bump.high:.6f}"}
        for name, bump in bumps.items()
    )  # fmt: skip
    texts = [prompt.text for prompt in pocket.prompts()][:: 160 if options.quick else 10]
    model = fp.load(options.model)
    tally = tally_scores(model, texts)
    layers = [f"L{layer}" for layer in range(model.config.layers)]
    tables = {
        "minima and bumps": minima,
        f"scores of {model.name} over {len(texts):,} texts": tally.table(layers, group="layer"),
    }
    if options.scan:
        scan = Scan.open(options.scan).check(model)
        tables[f"shares of a scan of {scan.corpus}"] = table_scan(scan, model.config.activation)
    print_tables(tables)
    if options.html:
        note = f"{model.name} ({model.config.activation}) over {len(texts):,} texts, BOS left out."
        figures = [plot_curves(), plot_gate_surface(), plot_scores(tally, layers, note=note)]
        save_figures(figures, options.html, title="Activation functions")


if __name__ == "__main__":
    run_script(main)

"""Which lists of tokens hold: those read through the Jacobian lens, or without it?

Method: neurons drawn by seed from every layer; the lists of each are checked (`fp.check_lists`) in passages
that the lens was not fitted on, with the lens and without. Printed: how many of ten tokens do what the list says,
by layer, and the same of another neuron's list. What it shows is in docs/lens.md.

    python analyses/measured/lens_compared.py LENS TEXTS --model smollm2
    python analyses/measured/lens_compared.py own pocket
"""

import random
from pathlib import Path

import pandas as pd

import ffnprobe as fp
from analyses.pocket import texts as taught
from analyses.script import new_parser, run_script
from ffnprobe.views.terminal import print_tables

PASSAGES = 12


def main(argv: list[str] | None = None) -> None:
    """Check lists with and without a lens."""
    parser = new_parser(__doc__, model=True)
    parser.add_argument("lens", help="a folder of fit-lens, a .pt file, or own")
    parser.add_argument(
        "texts", help="a file with a passage a line, or pocket for its own sentences"
    )
    parser.add_argument("--neurons", type=int, default=32, help="how many of each layer")
    parser.add_argument("--every", type=int, default=1, help="only every n-th layer")
    parser.add_argument("--seed", type=int, default=0, help="by which they are drawn")
    options = parser.parse_args(argv)
    model = fp.load(options.model)
    chance = random.Random(options.seed)
    if options.texts == "pocket":
        drawn = [each.text for each in taught.passages(400, seed=options.seed)]
    else:
        lines = Path(options.texts).read_text(encoding="utf-8").splitlines()
        drawn = chance.sample(lines, PASSAGES)
    ways = {"without": model, "with": fp.use_lens(model, options.lens)}
    columns: dict[str, pd.Series[float]] = {}
    names = [
        f"L{layer}N{number}"
        for layer in range(0, model.config.layers, options.every)
        for number in chance.sample(range(model.config.d_mlp), options.neurons)
    ]
    for way, each in ways.items():
        found = fp.check_lists(each, names, texts=drawn).by_layer()
        for name, own in found.set_index("layer").groupby("list"):
            short = str(name).removesuffix("_tokens")
            columns[f"{short} {way}"] = own.holds
            columns[f"{short} other {way}"] = own.other
    table = pd.DataFrame(columns).round(1).reset_index()
    print_tables({f"{model.name}, of 10 tokens": table[sorted(table, key=lambda n: n != "layer")]})


if __name__ == "__main__":
    run_script(main)

"""Do two models trained from different seeds grow the same neurons?

Method: for each neuron find the neuron of the other model whose answer does most the same to all tokens
(`fp.match`), beside as many random answers that span the same space. With texts, both models are scanned
and each pair is compared by its strongest examples too. Without another model, the model is compared with
itself, its neurons shuffled: all of them must be found.

Found on pocket shuffled: every neuron has its twin, correlation 1. Between two seeds of pocket, 2 of 5,376
neurons have one: the median of best correlations is 0.33 to 0.44 by layer, the control's 0.32 to 0.40. Where
a fact is kept was drawn by lot, so other neurons keep it. For two seeds, make the other first:

    python analyses/pocket/train.py --seed 1 --out pocket-1
    python analyses/universal_neurons.py pocket-1 --html universal.html
"""

from dataclasses import replace

import torch

import ffnprobe as fp
from analyses.script import new_parser, run_script
from ffnprobe.models.checkpoint import fingerprint
from ffnprobe.views.saving import save_figures
from ffnprobe.views.terminal import print_tables


def main(argv: list[str] | None = None) -> None:
    parser = new_parser(__doc__, model=True)
    parser.add_argument("other", nargs="?", help="the other model (default: itself, shuffled)")
    parser.add_argument("--texts", nargs="+", help="files that both models are scanned on")
    parser.add_argument("--seed", type=int, default=0, help="seed of control and shuffle")
    options = parser.parse_args(argv)
    model = fp.load(options.model)
    other = fp.load(options.other) if options.other else shuffle(model, options.seed)
    scans = [fp.scan(each, options.texts) for each in (model, other)] if options.texts else None
    match = fp.match(model, other, seed=options.seed, scans=scans)
    twins = match.neurons[match.neurons.is_twin]
    rest = match.neurons[~match.neurons.is_twin]
    columns = [
        name for name in map(str, match.neurons) if name.endswith(("correlation", "examples"))
    ]
    means = {"twins": twins[columns].mean(), "others": rest[columns].mean()}
    compared = match.neurons[columns].mean().to_frame("all").assign(**means).T
    compared.insert(0, "neurons", [len(match), len(twins), len(rest)])
    compared.insert(0, "which", compared.index)
    print_tables(
        {
            match.title: match.top(10),
            "by layer": match.by_layer(),
            "means": compared.reset_index(drop=True),
        }
    )
    if options.html:
        figures = [fp.plot(match, name) for name in ("layers", "correlations")]
        save_figures(figures, options.html, title=f"{model.name} and {other.name}")


def shuffle(model: fp.Model, seed: int) -> fp.Model:
    """Return the same model with the neurons of each layer in another order."""
    generator = torch.Generator().manual_seed(seed)
    weights, layout = dict(model.weights), model.layout
    for layer in range(model.config.layers):
        order = torch.randperm(model.config.d_mlp, generator=generator)
        for part in filter(None, (layout.up, layout.gate, layout.down)):
            name, is_down = layout.of(layer, part), part == layout.down
            axis = 0 if layout.is_transposed == is_down else 1
            weights[f"{name}.weight"] = weights[f"{name}.weight"].index_select(axis, order)
            if not is_down and f"{name}.bias" in weights:
                weights[f"{name}.bias"] = weights[f"{name}.bias"][order]
    name = f"{model.name}-shuffled"
    return replace(model, name=name, weights=weights, fingerprint=fingerprint(weights))


if __name__ == "__main__":
    run_script(main)

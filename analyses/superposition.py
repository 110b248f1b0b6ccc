"""How many answers share how few dimensions, and what do they pay for it?

Method: cosines of all pairs of a layer's questions and of its answers against random directions of
the same number and lengths; effective dimension; interference; in how many of the facts it knows
each of pocket's neurons is among the ten hardest pushers; and the small model in which superposition
appears as signals become rare.

    python analyses/superposition.py --html superposition.html
"""

import ffnprobe as fp
from ffnprobe.cli.script import new_parser, run_script
from ffnprobe.lab.sparse import train_sparse
from ffnprobe.lab.superposition import count_facts, measure_layer, table_crowding
from ffnprobe.models import pocket
from ffnprobe.views.pages import save_figures
from ffnprobe.views.superposition import plot_crowding, plot_fact_load, plot_sparse
from ffnprobe.views.terminal import print_tables


def main(argv: list[str] | None = None) -> None:
    parser = new_parser(__doc__, quick="40 facts, a short training", model=True)
    parser.add_argument("--layer", type=int, default=-1, help="the layer that is drawn")
    options = parser.parse_args(argv)
    model = fp.load(options.model)
    layer = options.layer % model.config.layers
    tables = {f"directions of {model.name}": table_crowding(model)}
    figures = [plot_crowding(measure_layer(model, layer), note=f"{model.name}, layer L{layer}.")]
    if model.name == "pocket":
        first = {prompt.fact: prompt for prompt in reversed(list(pocket.prompts()))}
        prompts = list(first.values())[:: len(first) // 40 if options.quick else 1]
        load = count_facts(model, prompts)
        tables[f"neurons in {load.known:,} known facts of {load.asked:,}"] = load.table()
        figures.append(plot_fact_load(load, note="pocket's own facts, each in its first template."))
    sparse = train_sparse(steps=300 if options.quick else 2000)
    tables["signals in too few dimensions"] = sparse.table()
    figures.append(plot_sparse(sparse, note="relu(WᵀWx + b): diagonal kept, off it interference."))
    print_tables(tables)
    if options.html:
        save_figures(figures, options.html, title="Superposition")


if __name__ == "__main__":
    run_script(main)

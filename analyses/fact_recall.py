"""Which neurons push the facts of one relation, and are they specific to it?

Method: score a table of facts. Find the neurons that push the relation's facts more often than chance
(shuffled relations correct for the search over all neurons). Compare facts by the neurons they share.
Remove the relation's neurons together and measure what its facts lose, what other facts lose, and what
random neurons cost.

    python analyses/fact_recall.py --relation sport --html sport.html

Found on pocket, for sport: at the last token the same few neurons push all its facts (L1N740 first), and
removing 20 of them there changes little: the facts are recalled at the subject, which `explain` shows.
"""

import ffnprobe as fp
from analyses.script import new_parser, run_script
from ffnprobe.views.saving import save_figures
from ffnprobe.views.terminal import print_tables

SHOWN = ["prompt", "answer", "known", "probability", "margin", "mlp_share", "neurons"]


def main(argv: list[str] | None = None) -> None:
    parser = new_parser(__doc__, quick="few permutations, few facts removed from", model=True)
    parser.add_argument("--facts", default="pocket", help="a table of facts: a file or a folder")
    parser.add_argument("--relation", default="sport", help="the relation of interest")
    parser.add_argument("--neurons", type=int, default=20, help="how many are removed together")
    options = parser.parse_args(argv)
    model = fp.load(options.model)
    scores = fp.score(model, options.facts)
    many = 99 if options.quick else 999
    specificity = scores.specificity(
        options.relation, options.neurons, most=20 if options.quick else 100
    )
    relations = scores.by_relation(10, permutations=many)
    overlap = scores.overlap(permutations=many)
    own = relations.neurons[relations.neurons.relation == options.relation]
    readings = fp.read(model, list(own.name)).table
    promotes = own.merge(readings[["name", "promotes"]], on="name")
    is_own = scores.table.relation == options.relation
    print_tables({
        scores.title: relations.table.drop(columns="neurons"),
        f"neurons of {options.relation}": promotes.drop(columns=["relation", "layer", "neuron"]),
        "neurons that facts share": overlap.table,
        "removed together": specificity.table,
        f"facts of {options.relation}": scores.table.loc[is_own, SHOWN].head(12),
    })  # fmt: skip
    if options.html:
        figures = [fp.plot(result) for result in (scores, relations, overlap, specificity)]
        figures.insert(3, fp.plot(overlap, "relations"))
        save_figures(figures, options.html, title=f"The facts of {options.relation}")


if __name__ == "__main__":
    run_script(main)

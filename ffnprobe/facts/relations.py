"""Each relation by itself: how much is known, and the neurons its facts share beyond chance.

For relation r (n facts of N) and a neuron listed for m facts in all, `facts` of them in r:

    share, elsewhere   facts / n, and the same share over all other relations
    odds               odds of being listed in r over the odds elsewhere, one half added to each count
    z                  (facts − m n / N) / its standard deviation were relations dealt at random
    p                  how often, over shuffled relations, the best z of *any* neuron for r is at
                       least this one: the search over all neurons is paid for

Neurons are in the order of z, then of facts (a table of one relation has nothing to compare with:
every z is 0). Hubs (see `counting`) top every relation's list and say nothing of
one; they are named, and set aside unless asked for.

Limits: pushes are direct, and a neuron among the top k of a fact need not be what carries it; see
`specificity` for what removing them does.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from ffnprobe.cards import card, table_html
from ffnprobe.errors import OptionRefused
from ffnprobe.facts.counting import Counting, count_neurons, name_all, standardise
from ffnprobe.models.provenance import Provenance
from ffnprobe.reading.ordering import check_k

if TYPE_CHECKING:
    from ffnprobe.facts.scores import Scores

ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Relations:
    """One row a relation in `table`; its most particular neurons in `neurons`; the hubs by name."""

    table: pd.DataFrame
    neurons: pd.DataFrame
    hubs: tuple[str, ...]
    provenance: Provenance

    def _repr_html_(self) -> str:
        hubs = f"hubs: {' '.join(self.hubs)}" if self.hubs else ""
        return card("facts by relation", table_html(self.table), note=hubs)

    def tables(self) -> dict[str, pd.DataFrame]:
        """Name the tables, in the order they are read."""
        return {"relations": self.table, "neurons": self.neurons}


def sum_up(scores: "Scores", k: int, *, hubs: bool, permutations: int, seed: int) -> Relations:
    """Sum up every relation and find its k most particular neurons."""
    check_k(k, scores.model.config.neurons, of="neurons")
    check_permutations(permutations)
    counted = count_neurons(scores)
    named = counted.hubs()
    counting = counted if hubs else counted.set_aside(named)
    neurons = _table_neurons(scores, counting, k, permutations, seed)
    groups = scores.table.groupby("relation", sort=False)
    table = groups.agg(
        facts=("known", "size"),
        known=("known", "sum"),
        share_known=("known", "mean"),
        median_rank=("rank", "median"),
        median_log_probability=("log_probability", "median"),
        median_margin=("margin", "median"),
        median_mlp_share=("mlp_share", "median"),
        median_attention_share=("attention_share", "median"),
    ).reset_index()
    table["neurons"] = [
        " ".join(neurons.name[neurons.relation == relation]) for relation in table.relation
    ]
    counted_as = "counted" if hubs else "set aside"
    settings = f"hubs {counted_as}, {permutations} permutations, seed {seed}"
    names = tuple(name_all(scores.model, named))
    return Relations(table, neurons, names, scores.provenance_with(settings))


def check_permutations(permutations: int) -> None:
    """Refuse a number of permutations that no test can have."""
    if permutations < 1:
        raise OptionRefused(f"{permutations} permutations: a test needs some.", remedy="1000")


def _table_neurons(
    scores: "Scores", counting: Counting, k: int, permutations: int, seed: int
) -> pd.DataFrame:
    count = len(counting.relations)
    tally = counting.tally(counting.labels, count)
    sizes, totals = counting.sizes(counting.labels, count), tally.sum(0)
    z = standardise(tally, sizes)
    best = _best_by_chance(counting, permutations, seed)
    width = scores.model.config.d_mlp
    frames = []
    for label, relation in enumerate(counting.relations):
        order = np.lexsort((-tally[label], -z[label]))[:k]
        order = order[tally[label, order] > 0]
        inside, outside = tally[label, order], (totals - tally[label])[order]
        rest = sizes.sum() - sizes[label]
        reached = best[:, label, None] >= z[label, order] - ROUNDING
        numbers = counting.neurons[order]
        frames.append(
            pd.DataFrame(
                {
                    "relation": relation,
                    "name": name_all(scores.model, numbers.tolist()),
                    "layer": numbers // width,
                    "neuron": numbers % width,
                    "facts": inside,
                    "share": inside / sizes[label],
                    "elsewhere": outside / rest if rest else np.nan,
                    "odds": odds(inside, sizes[label], outside, rest) if rest else np.nan,
                    "z": z[label, order],
                    "p": (1 + reached.sum(0)) / (1 + permutations),
                }
            )
        )
    return pd.concat(frames, ignore_index=True)


def _best_by_chance(
    counting: Counting, permutations: int, seed: int
) -> Float[np.ndarray, "permutation relation"]:
    """Return each relation's largest z of any neuron, for so many deals of the relations."""
    generator, count = np.random.default_rng(seed), len(counting.relations)
    best = np.zeros((permutations, count))
    for deal in range(permutations):
        labels = counting.shuffle(generator)
        z = standardise(counting.tally(labels, count), counting.sizes(labels, count))
        best[deal] = z.max(axis=1, initial=0.0)
    return best


def odds(
    inside: Int[np.ndarray, " neuron"], size: int, outside: Int[np.ndarray, " neuron"], rest: int
) -> Float[np.ndarray, " neuron"]:
    """Return the odds of being listed in a relation over those elsewhere, one half in each cell."""
    ratio: Float[np.ndarray, " neuron"] = (
        (inside + 0.5) * (rest - outside + 0.5) / ((size - inside + 0.5) * (outside + 0.5))
    )
    return ratio

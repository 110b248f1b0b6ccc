"""Relation by relation: how much is known, and which neurons its facts share beyond chance.

For relation r (n facts of N) and a neuron listed for m facts in all, `facts` of them in r:

    share, elsewhere   facts / n, and the same share over all other relations
    odds               odds of being listed in r over the odds elsewhere, one half added to each count
    z                  (facts − m n / N) / its standard deviation if relations were assigned at random
    p                  how often, over shuffled relations, the best z of *any* neuron for r is at
                       least this one, which corrects for the search over all neurons

Neurons are in the order of z, then of facts. (A table of one relation has nothing to compare with:
every z is 0.) Hubs (see `counting`) would top every relation's list and say nothing about any. They
are named, and set aside unless `hubs` is true.

Limits: pushes are direct, and a neuron among the top k of a fact need not be what carries it;
`specificity` measures what removing them does.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from ffnprobe.errors import OptionRefused
from ffnprobe.facts.counting import Counting, count_neurons, name_all, standardise
from ffnprobe.facts.scores import DIRECTLY
from ffnprobe.names import NeuronId
from ffnprobe.provenance import Provenance
from ffnprobe.reading.neuron_tables import list_neurons
from ffnprobe.reading.projection import check_top
from ffnprobe.results import Result

if TYPE_CHECKING:
    from ffnprobe.facts.scores import Scores

ROUNDING = 1e-9


@dataclass(frozen=True, eq=False, repr=False)
class Relations(Result):
    """One row per relation in `table`; its most specific neurons in `neurons`; the hubs by name.

    >>> import ffnprobe as fp
    >>> rows = [fp.FactRow("Michael Jordan plays the sport of", " basketball", relation="sport")]
    >>> fp.score(fp.load("pocket"), rows).by_relation()
    Relations(1 fact of 1 relation)
    """

    table: pd.DataFrame
    neurons: pd.DataFrame
    hubs: tuple[str, ...]
    provenance: Provenance

    @property
    def title(self) -> str:
        """Say how many facts of how many relations."""
        facts, relations = int(self.table.facts.sum()), len(self.table)
        return (
            f"{facts:,} fact{'s' * (facts != 1)} of {relations:,} relation{'s' * (relations != 1)}"
        )

    @property
    def caption(self) -> str:
        """Which neurons are listed, and the hubs if there are any."""
        return f"{DIRECTLY}; hubs: {' '.join(self.hubs)}" if self.hubs else DIRECTLY

    def tables(self) -> dict[str, pd.DataFrame]:
        """Name the tables, in the order they are read."""
        return {"relations": self.table, "neurons": self.neurons}


def summarise_relations(
    scores: "Scores", top: int, *, hubs: bool, permutations: int, seed: int
) -> Relations:
    """Summarise every relation and find its k most specific neurons."""
    check_top(top, scores.model.config.neurons, of="neurons")
    check_permutations(permutations)
    counted = count_neurons(scores)
    named = counted.hubs()
    counting = counted if hubs else counted.set_aside(named)
    neurons = _table_neurons(scores, counting, top, permutations, seed)
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
    provenance = scores.provenance.including(
        k=top, hubs=name_treatment(hubs), permutations=permutations, seed=seed
    )
    names = tuple(name_all(scores.model, named))
    return Relations(provenance.note(table), provenance.note(neurons), names, provenance)


def name_treatment(hubs: bool) -> str:
    """Say what was done with hubs, as a provenance says it."""
    return "counted" if hubs else "set aside"


def check_permutations(permutations: int) -> None:
    """Refuse a number of permutations that no test can have."""
    if permutations < 1:
        raise OptionRefused(
            f"{permutations} permutations: a test needs at least one.", remedy="1000"
        )


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
            list_neurons(
                scores.model,
                [NeuronId(*divmod(number, width)) for number in numbers.tolist()],
                {
                    "relation": relation,
                    "facts": inside,
                    "share": inside / sizes[label],
                    "elsewhere": outside / rest if rest else np.nan,
                    "odds": odds(inside, sizes[label], outside, rest) if rest else np.nan,
                    "z": z[label, order],
                    "p": (1 + reached.sum(0)) / (1 + permutations),
                },
            )
        )
    return pd.concat(frames, ignore_index=True)


def _best_by_chance(
    counting: Counting, permutations: int, seed: int
) -> Float[np.ndarray, "permutation relation"]:
    """Return each relation's largest z of any neuron, for each shuffle of the relations."""
    generator, count = np.random.default_rng(seed), len(counting.relations)
    best = np.zeros((permutations, count))
    for number in range(permutations):
        labels = counting.shuffle(generator)
        z = standardise(counting.tally(labels, count), counting.sizes(labels, count))
        best[number] = z.max(axis=1, initial=0.0)
    return best


def odds(
    inside: Int[np.ndarray, " neuron"], size: int, outside: Int[np.ndarray, " neuron"], rest: int
) -> Float[np.ndarray, " neuron"]:
    """Return the odds of being listed in a relation over those elsewhere, one half in each cell."""
    ratio: Float[np.ndarray, " neuron"] = (
        (inside + 0.5) * (rest - outside + 0.5) / ((size - inside + 0.5) * (outside + 0.5))
    )
    return ratio

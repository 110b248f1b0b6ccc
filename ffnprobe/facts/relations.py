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
from ffnprobe.facts.counting import Counting, Labels, count_neurons, name_all, standardise
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


# MERGED: ffnprobe.facts.overlap
# Do facts of one relation share neurons? Similarity of facts by the neurons that push them.
#
#     overlap of two facts = how many of their k hardest pushing neurons they share / k
#
# Means are over all pairs of different facts, counted and not sampled: Σ_n C(c_n, 2) is what the
# facts of a group share in all, c_n being how many of them list neuron n. A fact in several templates
# is not compared with itself. Two facts with random neurons would share k / (all neurons). Hubs, which
# every fact lists, are set aside unless `hubs` is true.
#
# `p` is how often shuffled relations give at least as large a difference between the overlap within
# relations and between them.


@dataclass(frozen=True, eq=False, repr=False)
class Overlap(Result):
    """Facts compared: means and the test in `table`, pairs of relations in `relations`.

    `values` compares the facts named in `facts` one by one, ordered by relation: all of them, or as
    many of each relation as the limit allows.

    >>> import ffnprobe as fp
    >>> rows = [
    ...     fp.FactRow(f"{athlete} plays the sport of", f" {sport}", relation="sport")
    ...     for athlete, sport in (("Michael Jordan", "basketball"), ("Babe Ruth", "baseball"))
    ... ]
    >>> found = fp.score(fp.load("pocket"), rows).overlap()
    >>> found.table.pairs.tolist()
    ['within relations', 'between relations', 'random neurons']
    """

    table: pd.DataFrame
    relations: pd.DataFrame
    facts: pd.DataFrame
    values: Float[np.ndarray, "fact fact"]
    provenance: Provenance

    @property
    def title(self) -> str:
        """Say what is compared."""
        return f"neurons that {len(self.facts):,} facts share"

    @property
    def caption(self) -> str:
        """How the facts were compared."""
        return self.provenance.describe()

    def tables(self) -> dict[str, pd.DataFrame]:
        """Name the tables, in the order they are read."""
        return {"overlap": self.table, "relations": self.relations}


def compare_facts(
    scores: "Scores", *, hubs: bool, most: int, permutations: int, seed: int
) -> Overlap:
    """Compare all facts within their relations and between them."""
    check_permutations(permutations)
    if most < 1:
        raise OptionRefused(f"{most} facts cannot be compared.", remedy="300")
    counting = count_neurons(scores)
    if not hubs:
        counting = counting.set_aside(counting.hubs())
    itself = _share_with_itself(counting)
    within, between = _means(counting, counting.labels, itself)
    generator = np.random.default_rng(seed)
    shuffled = [_means(counting, counting.shuffle(generator), itself) for _ in range(permutations)]
    reached = sum(one - other >= within - between - ROUNDING for one, other in shuffled)
    summary = pd.DataFrame(
        {
            "pairs": ["within relations", "between relations", "random neurons"],
            "overlap": [within, between, counting.k / scores.model.config.neurons],
            "p": [(1 + reached) / (1 + permutations), np.nan, np.nan],
        }
    )
    chosen = _choose(counting, most)
    provenance = scores.provenance.including(
        k=counting.k, hubs=name_treatment(hubs), permutations=permutations, seed=seed
    )
    return Overlap(
        table=provenance.note(summary),
        relations=provenance.note(_table(counting, itself)),
        facts=scores.table.loc[chosen, ["relation", "subject", "prompt", "answer"]],
        values=_compare_each(counting, chosen),
        provenance=provenance,
    )


def _means(counting: Counting, labels: Labels, itself: "Shared") -> tuple[float, float]:
    """Return the mean overlap of pairs of facts with one label, and of pairs with two."""
    within = _share(counting, labels, len(counting.relations))
    every = _share(counting, np.zeros_like(labels), 1)
    return (
        _divide(
            within.overlap.sum() - itself.overlap.sum(), within.pairs.sum() - itself.pairs.sum()
        ),
        _divide(every.overlap.sum() - within.overlap.sum(), every.pairs.sum() - within.pairs.sum()),
    )


@dataclass(frozen=True)
class Shared:
    """What all pairs of a group share, added up, and how many pairs there are."""

    overlap: Float[np.ndarray, " group"]
    pairs: Int[np.ndarray, " group"]


def _share(counting: Counting, labels: Labels, groups: int) -> Shared:
    """Add up the overlap of all pairs of rows within each group."""
    counts, sizes = counting.tally(labels, groups), counting.sizes(labels, groups)
    return Shared((counts * (counts - 1) / 2).sum(1) / max(counting.k, 1), _pairs(sizes))


def _share_with_itself(counting: Counting) -> Shared:
    """Add up, relation by relation, the overlap of rows that state the same fact."""
    groups, width = len(counting.relations), len(counting.neurons)
    listed = counting.facts[counting.rows] * width + counting.columns
    keys, counts = np.unique(listed, return_counts=True)
    _, first, sizes = np.unique(counting.facts, return_index=True, return_counts=True)
    relation = counting.labels[first]
    shared = np.bincount(relation[keys // max(width, 1)], counts * (counts - 1) / 2, groups)
    pairs = np.bincount(relation, _pairs(sizes), groups)
    return Shared(shared / max(counting.k, 1), pairs.astype(np.int64))


def _pairs(sizes: Int[np.ndarray, " group"]) -> Int[np.ndarray, " group"]:
    pairs: Int[np.ndarray, " group"] = sizes * (sizes - 1) // 2
    return pairs


def _divide(total: float, pairs: int) -> float:
    return float(total / pairs) if pairs else float("nan")


def _table(counting: Counting, itself: Shared) -> pd.DataFrame:
    """Table the mean overlap of every relation with itself and every other."""
    count = len(counting.relations)
    tally, sizes = counting.tally(counting.labels, count), counting.sizes(counting.labels, count)
    overlap = tally.astype(float) @ tally.transpose() / max(counting.k, 1)
    pairs = np.outer(sizes, sizes)
    own = _share(counting, counting.labels, count)
    np.fill_diagonal(overlap, own.overlap - itself.overlap)
    np.fill_diagonal(pairs, own.pairs - itself.pairs)
    return pd.DataFrame(
        [
            (counting.relations[one], counting.relations[two], pairs[one, two],
             _divide(overlap[one, two], pairs[one, two]))
            for one, two in zip(*np.triu_indices(count), strict=True)
        ],
        columns=["relation", "other", "pairs", "overlap"],
    )  # fmt: skip


def _choose(counting: Counting, most: int) -> list[int]:
    """Choose rows ordered by relation, evenly within each where there are too many."""
    chosen: list[int] = []
    for label in range(len(counting.relations)):
        rows = np.flatnonzero(counting.labels == label)
        share = max(1, most * len(rows) // len(counting.labels))
        size = min(len(rows), len(rows) if len(counting.labels) <= most else share)
        chosen += rows[np.linspace(0, len(rows) - 1, size).round().astype(int)].tolist()
    return chosen


def _compare_each(counting: Counting, chosen: list[int]) -> Float[np.ndarray, "fact fact"]:
    order = np.full(len(counting.labels), -1)
    order[chosen] = np.arange(len(chosen))
    kept = order[counting.rows] >= 0
    listed = np.zeros((len(chosen), len(counting.neurons)), dtype=np.float32)
    listed[order[counting.rows[kept]], counting.columns[kept]] = 1
    values: Float[np.ndarray, "fact fact"] = listed @ listed.transpose() / max(counting.k, 1)
    return values

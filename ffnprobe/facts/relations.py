"""Relation by relation: how much is known, and which neurons its facts share beyond chance.

For relation r (n facts of N) and a neuron listed for m facts in all, `facts` of them in r:

    share, elsewhere   facts / n, and the same share over all other relations
    odds               odds of being listed in r over the odds elsewhere, one half added to each count
    z                  (facts − m n / N) / its standard deviation if relations were assigned at random
    p                  how often, over shuffled relations, the best z of *any* neuron for r is at
                       least this one, which corrects for the search over all neurons

Neurons are in the order of z, then of facts. (A table of one relation has nothing to compare with:
every z is 0.)

A **hub** of attribution pushes facts whatever they are about: it is among the top k of at least half
the facts of more than half of the relations. (With only one relation, hubs cannot be told from its
own neurons, and none is named.) Hubs say nothing about any relation: they are named, and set aside unless
`hubs` is true.

Facts are shuffled, not rows: a fact in several templates keeps its rows together.

`Overlap` compares facts with each other:

    overlap of two facts = how many of their k hardest pushing neurons they share / k

Means are over all pairs of different facts, counted and not sampled: Σ_n C(c_n, 2) is what the
facts of a group share in all, c_n being how many of them list neuron n. A fact in several templates
is not compared with itself. Two facts with random neurons would share k / (all neurons). Its `p` is how
often shuffled relations give at least as large a difference between the overlap within relations and
between them.

Limits: pushes are direct, and a neuron among the top k of a fact need not be what carries it;
`specificity` measures what removing them does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from ffnprobe.errors import DataRefused, OptionRefused
from ffnprobe.models.model import Model
from ffnprobe.names import NeuronId
from ffnprobe.provenance import Provenance
from ffnprobe.reading.neuron_tables import list_neurons
from ffnprobe.reading.projection import check_top
from ffnprobe.results import Result

if TYPE_CHECKING:
    from ffnprobe.facts.scores import Scores

HUB_SHARE = 0.5
# What every list of a table's neurons is about.
DIRECTLY = (
    "neurons: by direct push where the answer is predicted (the last token); what neurons at the subject say "
    "comes through attention: paths, explain"
)
Labels = Int[np.ndarray, " row"]
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Counting:
    """Which neurons are listed for which rows: entry i says neuron `columns[i]` is listed for `rows[i]`."""

    relations: tuple[str, ...]
    labels: Labels
    facts: Labels
    neurons: Int[np.ndarray, " neuron"]
    rows: Int[np.ndarray, " entry"]
    columns: Int[np.ndarray, " entry"]
    k: int

    def sizes(self, labels: Labels) -> Int[np.ndarray, " relation"]:
        """Count the rows of each relation, by these labels of the rows."""
        return np.bincount(labels, minlength=len(self.relations))

    def tally(self, labels: Labels) -> Int[np.ndarray, "relation neuron"]:
        """Count, for each relation, in how many of its rows each neuron is listed."""
        count, width = len(self.relations), len(self.neurons)
        flat = np.bincount(labels[self.rows] * width + self.columns, minlength=count * width)
        return flat.reshape(count, width)

    def shuffles(self, permutations: int, seed: int) -> Iterator[Labels]:
        """Shuffle the relations over the facts, so many times."""
        if permutations < 1:
            raise OptionRefused(
                f"{permutations} permutations: a test needs at least one.", remedy="1000"
            )
        generator = np.random.default_rng(seed)
        _, first = np.unique(self.facts, return_index=True)
        for _ in range(permutations):
            yield generator.permutation(self.labels[first])[self.facts]

    def hubs(self) -> list[int]:
        """Return the flat numbers of the hubs, the most frequent first."""
        if len(self.relations) < 2:
            return []
        tally, sizes = self.tally(self.labels), self.sizes(self.labels)
        shares = tally / sizes[:, None]
        is_hub = (shares >= HUB_SHARE).sum(0) > len(self.relations) / 2
        order = np.argsort(-shares.mean(0), kind="stable")
        return [int(self.neurons[column]) for column in order if is_hub[column]]

    def set_aside(self, numbers: list[int]) -> "Counting":
        """Leave neurons out of the count."""
        is_kept = ~np.isin(self.neurons[self.columns], numbers)
        return replace(self, rows=self.rows[is_kept], columns=self.columns[is_kept])


def count_neurons(scores: "Scores") -> Counting:
    """Count which neurons are listed for which facts."""
    if not len(scores):
        raise DataRefused("no fact could be scored.", remedy="scores.problems says why")
    labels, relations = pd.factorize(pd.Series([row.relation for row in scores.rows], dtype=object))
    facts, _ = pd.factorize(pd.Series([row.fact for row in scores.rows], dtype=object))
    listed = scores.neurons.numpy()
    neurons, columns = np.unique(listed, return_inverse=True)
    count, k = listed.shape
    return Counting(
        relations=tuple(relations),
        labels=labels,
        facts=facts,
        neurons=neurons,
        rows=np.repeat(np.arange(count), k),
        columns=columns.reshape(-1),
        k=k,
    )


def standardise(
    counts: Int[np.ndarray, "group neuron"], sizes: Int[np.ndarray, " group"]
) -> Float[np.ndarray, "group neuron"]:
    """Return how many standard deviations each count is above chance; 0 where chance has no spread.

    Chance: as many rows as the group has, drawn from all without looking (hypergeometric).
    """
    rows, totals = sizes.sum(), counts.sum(0)
    shares = sizes[:, None] / rows
    variance = totals * shares * (1 - shares) * (rows - totals) / max(rows - 1, 1)
    # Rounding must not make a neuron that is in all rows look like one that is not.
    spread = np.sqrt(np.where(totals < rows, variance, 0.0))
    z: Float[np.ndarray, "group neuron"] = np.divide(
        counts - totals * shares, spread, out=np.zeros(counts.shape), where=spread > 0
    )
    return z


def name_all(model: Model, numbers: Sequence[int]) -> list[NeuronId]:
    """Name neurons by their flat numbers."""
    return [NeuronId(*divmod(number, model.config.d_mlp)) for number in numbers]


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
    provenance = _describe(scores, top, hubs, permutations, seed)
    names = tuple(map(str, name_all(scores.model, named)))
    return Relations(provenance.note(table), provenance.note(neurons), names, provenance)


def _describe(scores: "Scores", k: int, hubs: bool, permutations: int, seed: int) -> Provenance:
    treatment = "counted" if hubs else "set aside"
    return scores.provenance.including(k=k, hubs=treatment, permutations=permutations, seed=seed)


def _table_neurons(
    scores: "Scores", counting: Counting, k: int, permutations: int, seed: int
) -> pd.DataFrame:
    tally, sizes = counting.tally(counting.labels), counting.sizes(counting.labels)
    totals, z = tally.sum(0), standardise(tally, sizes)
    # Each relation's largest z of any neuron, for each shuffle of the relations.
    best = np.stack([
        standardise(counting.tally(labels), counting.sizes(labels)).max(axis=1, initial=0.0)
        for labels in counting.shuffles(permutations, seed)
    ])  # fmt: skip
    frames = []
    for label, relation in enumerate(counting.relations):
        order = np.lexsort((-tally[label], -z[label]))[:k]
        order = order[tally[label, order] > 0]
        inside, outside = tally[label, order], (totals - tally[label])[order]
        size, rest = sizes[label], sizes.sum() - sizes[label]
        # One half is added to each count.
        odds = (inside + 0.5) * (rest - outside + 0.5) / ((size - inside + 0.5) * (outside + 0.5))
        reached = best[:, label, None] >= z[label, order] - ROUNDING
        columns = {
            "relation": relation,
            "facts": inside,
            "share": inside / size,
            "elsewhere": outside / rest if rest else np.nan,
            "odds": odds if rest else np.nan,
            "z": z[label, order],
            "p": (1 + reached.sum(0)) / (1 + permutations),
        }
        names = name_all(scores.model, counting.neurons[order].tolist())
        frames.append(list_neurons(scores.model, names, columns))
    return pd.concat(frames, ignore_index=True)


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
    if most < 1:
        raise OptionRefused(f"{most} facts cannot be compared.", remedy="300")
    counting = count_neurons(scores)
    if not hubs:
        counting = counting.set_aside(counting.hubs())
    itself, every = _share_with_itself(counting), _share(counting, np.zeros_like(counting.labels))

    def average(labels: Labels) -> tuple[float, float]:
        """Return the mean overlap of pairs of facts with one label, and of pairs with two."""
        within = _share(counting, labels)
        return within.mean_without(itself), every.mean_without(within)

    within, between = average(counting.labels)
    shuffled = map(average, counting.shuffles(permutations, seed))
    reached = sum(one - other >= within - between - ROUNDING for one, other in shuffled)
    summary = pd.DataFrame(
        {
            "pairs": ["within relations", "between relations", "random neurons"],
            "overlap": [within, between, counting.k / scores.model.config.neurons],
            "p": [(1 + reached) / (1 + permutations), np.nan, np.nan],
        }
    )
    chosen = _choose(counting, most)
    provenance = _describe(scores, counting.k, hubs, permutations, seed)
    return Overlap(
        table=provenance.note(summary),
        relations=provenance.note(_table(counting, itself)),
        facts=scores.table.loc[chosen, ["relation", "subject", "prompt", "answer"]],
        values=_compare_each(counting, chosen),
        provenance=provenance,
    )


@dataclass(frozen=True)
class Shared:
    """What all pairs of facts in a group share, added up, and how many pairs there are."""

    overlap: Float[np.ndarray, " group"]
    pairs: Int[np.ndarray, " group"]

    def mean_without(self, other: "Shared") -> float:
        """Return the mean overlap of a pair that is not among others."""
        pairs = self.pairs.sum() - other.pairs.sum()
        return float((self.overlap.sum() - other.overlap.sum()) / pairs) if pairs else float("nan")


def _share(counting: Counting, labels: Labels) -> Shared:
    """Add up the overlap of all pairs of rows within each group."""
    counts, sizes = counting.tally(labels), counting.sizes(labels)
    return Shared((counts * (counts - 1) / 2).sum(1) / max(counting.k, 1), sizes * (sizes - 1) // 2)


def _share_with_itself(counting: Counting) -> Shared:
    """Add up, relation by relation, the overlap of rows that state the same fact."""
    groups, width = len(counting.relations), len(counting.neurons)
    listed = counting.facts[counting.rows] * width + counting.columns
    keys, counts = np.unique(listed, return_counts=True)
    _, first, sizes = np.unique(counting.facts, return_index=True, return_counts=True)
    relation = counting.labels[first]
    shared = np.bincount(relation[keys // max(width, 1)], counts * (counts - 1) / 2, groups)
    pairs = np.bincount(relation, sizes * (sizes - 1) // 2, groups)
    return Shared(shared / max(counting.k, 1), pairs.astype(np.int64))


def _table(counting: Counting, itself: Shared) -> pd.DataFrame:
    """Table the mean overlap of every relation with itself and every other."""
    tally, sizes = counting.tally(counting.labels), counting.sizes(counting.labels)
    overlap = tally.astype(float) @ tally.transpose() / max(counting.k, 1)
    pairs = np.outer(sizes, sizes)
    own = _share(counting, counting.labels)
    np.fill_diagonal(overlap, own.overlap - itself.overlap)
    np.fill_diagonal(pairs, own.pairs - itself.pairs)
    one, other = np.triu_indices(len(sizes))
    means = np.divide(overlap, pairs, out=np.full(overlap.shape, np.nan), where=pairs > 0)
    names = np.array(counting.relations, dtype=object)
    return pd.DataFrame({
        "relation": names[one], "other": names[other], "pairs": pairs[one, other],
        "overlap": means[one, other],
    })  # fmt: skip


def _choose(counting: Counting, most: int) -> list[int]:
    """Choose rows ordered by relation, evenly within each where there are too many."""
    count = len(counting.labels)
    chosen: list[int] = []
    for label in range(len(counting.relations)):
        rows = np.flatnonzero(counting.labels == label)
        size = len(rows) if count <= most else max(1, most * len(rows) // count)
        chosen += rows[np.linspace(0, len(rows) - 1, size).round().astype(int)].tolist()
    return chosen


def _compare_each(counting: Counting, chosen: list[int]) -> Float[np.ndarray, "fact fact"]:
    """Return the overlap of the chosen facts, one by one."""
    order = np.full(len(counting.labels), -1)
    order[chosen] = np.arange(len(chosen))
    entries = order[counting.rows] >= 0
    listed = np.zeros((len(chosen), len(counting.neurons)), dtype=np.float32)
    listed[order[counting.rows[entries]], counting.columns[entries]] = 1
    values: Float[np.ndarray, "fact fact"] = listed @ listed.transpose() / max(counting.k, 1)
    return values

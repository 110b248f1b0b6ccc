"""How often each neuron is among those that push a fact most, relation by relation.

A **hub** of attribution pushes facts whatever they are about: it is among the top k of at least half
the facts of more than half of the relations. (With only one relation, hubs cannot be told from its
own neurons, and none is named.)

Chance is what shuffled relations give. Facts are shuffled, not rows: a fact in several
templates keeps its rows together.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from ffnprobe.errors import DataRefused
from ffnprobe.models.model import Model
from ffnprobe.names import NeuronId

if TYPE_CHECKING:
    from ffnprobe.facts.scores import Scores

HUB_SHARE = 0.5
Labels = Int[np.ndarray, " row"]


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

    def sizes(self, labels: Labels, groups: int) -> Int[np.ndarray, " group"]:
        """Count the rows of each group."""
        return np.bincount(labels, minlength=groups)

    def tally(self, labels: Labels, groups: int) -> Int[np.ndarray, "group neuron"]:
        """Count, for each group of rows, in how many of them each neuron is listed."""
        width = len(self.neurons)
        flat = np.bincount(labels[self.rows] * width + self.columns, minlength=groups * width)
        return flat.reshape(groups, width)

    def shuffle(self, generator: np.random.Generator) -> Labels:
        """Shuffle the relations over the facts."""
        _, first = np.unique(self.facts, return_index=True)
        shuffled: Labels = generator.permutation(self.labels[first])[self.facts]
        return shuffled

    def hubs(self) -> list[int]:
        """Return the flat numbers of the hubs, the most frequent first."""
        count = len(self.relations)
        if count < 2:
            return []
        shares = self.tally(self.labels, count) / self.sizes(self.labels, count)[:, None]
        is_hub = (shares >= HUB_SHARE).sum(0) > count / 2
        order = np.argsort(-shares.mean(0), kind="stable")
        return [int(self.neurons[column]) for column in order if is_hub[column]]

    def set_aside(self, numbers: list[int]) -> "Counting":
        """Leave neurons out of the count."""
        kept = ~np.isin(self.neurons[self.columns], numbers)
        return replace(self, rows=self.rows[kept], columns=self.columns[kept])


def count_neurons(scores: "Scores") -> Counting:
    """Count which neurons are listed for which facts."""
    if not len(scores):
        raise DataRefused("no fact could be scored.", remedy="scores.problems says why")
    names = [row.relation for row in scores.rows]
    relations = tuple(dict.fromkeys(names))
    order = {relation: number for number, relation in enumerate(relations)}
    facts = {fact: number for number, fact in enumerate(dict.fromkeys(r.fact for r in scores.rows))}
    listed = scores.neurons.numpy()
    neurons, columns = np.unique(listed, return_inverse=True)
    count, k = listed.shape
    return Counting(
        relations=relations,
        labels=np.array([order[name] for name in names], dtype=np.int64),
        facts=np.array([facts[row.fact] for row in scores.rows], dtype=np.int64),
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


def name_all(model: Model, numbers: Sequence[int]) -> list[str]:
    """Name neurons by their flat numbers."""
    return [str(NeuronId(*divmod(number, model.config.d_mlp))) for number in numbers]

"""How often each neuron is among those that push a fact most, relation by relation.

A **hub** of attribution pushes facts whatever they are about: it is among the top k of at least half
the facts of more than half of the relations. (With only one relation, hubs cannot be told from its
own neurons, and none is named.)

Chance is what shuffled relations give. Facts are shuffled, not rows: a fact in several
templates keeps its rows together.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from ffnprobe.errors import DataRefused
from ffnprobe.models.model import Model
from ffnprobe.names import NeuronId

if TYPE_CHECKING:
    from ffnprobe.facts.scores import Scores

HUB_SHARE = 0.5
# What every list of a table's neurons is about.
DIRECTLY = (
    "neurons: by direct push where the answer is predicted (the last token); what neurons at the subject say "
    "comes through attention: paths, explain"
)
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

"""Propose, then decide: which neurons are removed, by what the gradient estimates.

At each position a pool: the neurons that pushed most and those whose removal is estimated to cost most
(activation difference × gradient, one backward pass for all). Each pool has its control, drawn once, the
same whether all neurons are removed or few. Of the pools, those are removed that would be listed if
estimates were effects; the effect's bar counts only half, so that an estimate that is too small by half
drops no neuron.

Of a control only what decides is removed. Its bar is a matter of a few order statistics: the 99 % quantile,
the median, the median absolute deviation. Neurons that are not removed count by their estimates, which set
the bar well at earlier positions and less well at the last. So at the last position the neurons nearest to
those statistics are removed (`choose_deciding`). Where the grade of a neuron that passes the other two tests
depends on a bar made so, more of its control is removed: at the last position all of it; at an earlier one,
where a removal costs as much as there are positions behind it, first the deciding neurons, then all.
docs/evidence.md has what this changes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.evidence.grades import CONTROLS, Bar, draw_alike
from ffnprobe.evidence.query import Query
from ffnprobe.names import NeuronId
from ffnprobe.reading.ordering import sort_neurons
from ffnprobe.tracing.path_tables import Source

# So many by push, and so many by estimate, at each position.
POOL = 64
# Of the pools, so many are removed: at the last position, and at the earlier ones together, where a
# removal costs as much as there are positions behind it; there more if more could get an A.
REMOVED = 64
REMOVED_EARLIER = 24
MOST_EARLIER = 40
MARGIN = 0.5
# Of a control, so many nearest to each of three order statistics.
DECIDING = 4
# An effect this close to a bar made of estimates asks for a better bar; of a bar with its deciding neurons
# removed, which is off by 3 % (median) or 11 % (nine in ten) at earlier positions, for the measured one.
NEAR = 0.25
CLOSE = 0.1


@dataclass(frozen=True, eq=False)
class Pool:
    """Neurons at a position that may matter, and the neurons like them that they are compared with."""

    position: int
    names: Sequence[NeuronId]
    control: Sequence[NeuronId]


def gather_pool(
    query: Query, position: int, hints: Float[Tensor, "layer neuron"] | None = None
) -> Pool:
    """Gather the neurons at a position that pushed most and those with the largest hints.

    The control is drawn like the neurons of the estimates' pool, whatever the hints.
    """
    names = list_most(query, position, hints)
    is_estimated = hints is not None
    alike = list_most(query, position, query.estimates[:, position]) if is_estimated else names
    generator = torch.Generator().manual_seed(query.seed + position)
    sizes = query.trace.activations[:, position].abs()
    return Pool(position, names, draw_alike(sizes, alike, CONTROLS, generator=generator))


def list_most(
    query: Query, position: int, hints: Float[Tensor, "layer neuron"] | None
) -> list[NeuronId]:
    """List the neurons at a position that pushed most, then those with the largest hints."""
    pushes = query.pushes[:, position]
    many = min(max(POOL, query.top), pushes.numel())
    proposed = sort_neurons(pushes, many)
    if hints is not None:
        proposed += sort_neurons(hints, many)
    return list(dict.fromkeys(proposed))


def choose_candidates(query: Query, pools: Sequence[Pool], *, looked_at: int) -> list[Source]:
    """Choose the neurons that would be listed if estimates were effects, with a margin.

    Before the last position few are removed, and first those that any effect could give an A: they pass
    the other two tests. An estimate may be far too small where the answer is saturated.
    """
    ranked: list[tuple[bool, int, float, int, NeuronId]] = []
    is_last = all(pool.position == query.last for pool in pools)
    for pool in pools:
        estimates = query.estimates[:, pool.position]
        own, pushes = pick(estimates, pool.names), query.pushes[:, pool.position]
        bar = Bar.over(
            pick(pushes, pool.control), pick(estimates, pool.control), looked_at=looked_at
        )
        eased = Bar(bar.push, None if bar.effect is None else MARGIN * bar.effect)
        asked = pick(query.acted[:, pool.position], pool.names), pick(pushes, pool.names)
        passed, needed = eased.count(*asked, own), Bar(bar.push, None).count(*asked, None)
        each = zip(pool.names, passed.tolist(), needed.tolist(), own.tolist(), strict=True)
        ranked += [
            (is_last or others < 2, -count, -value, pool.position, name)
            for name, count, others, value in each
        ]
    could_be_a = sum(not is_other for is_other, *_ in ranked)
    most = REMOVED if is_last else max(REMOVED_EARLIER, min(could_be_a, MOST_EARLIER))
    chosen = sorted(ranked)[: max(most, 2 * query.top)]
    return [(name, position) for *_, position, name in chosen]


def choose_deciding(query: Query, pool: Pool) -> list[NeuronId]:
    """Choose the neurons of a control whose effects decide where the bar is."""
    values = pick(query.estimates[:, pool.position], pool.control).double()
    if not len(values):
        return []
    away = (values - values.quantile(0.5)).abs()
    nearest = (-values, away, (away - away.quantile(0.5)).abs())
    chosen = torch.cat([gaps.argsort(stable=True)[:DECIDING] for gaps in nearest]).tolist()
    return [pool.control[number] for number in dict.fromkeys(chosen)]


def find_bars(
    query: Query, pool: Pool, effects: Float[Tensor, "layer neuron"] | None, *, looked_at: int
) -> Bar:
    """Set the bars over a pool's control; what of it was not removed counts by its estimate."""
    pushes = pick(query.pushes[:, pool.position], pool.control)
    if effects is None:
        return Bar.over(pushes, None, looked_at=looked_at)
    known = pick(effects, pool.control)
    estimates = pick(query.estimates[:, pool.position], pool.control)
    return Bar.over(pushes, torch.where(known.isnan(), estimates, known), looked_at=looked_at)


def is_close(
    query: Query,
    pool: Pool,
    effects: Float[Tensor, "layer neuron"],
    *,
    looked_at: int,
    within: float,
) -> bool:
    """Say whether an A depends on where exactly the effect's bar is: some effect is so near to it."""
    bar = find_bars(query, pool, effects, looked_at=looked_at)
    own = pick(effects, pool.names)
    others = Bar(bar.push, None).count(
        pick(query.acted[:, pool.position], pool.names),
        pick(query.pushes[:, pool.position], pool.names), None,
    )  # fmt: skip
    away = (own - (bar.effect or 0.0)).abs()
    return bool(((others == 2) & (away <= within * (bar.effect or 0.0))).any())


def pick(values: Float[Tensor, "layer neuron"], names: Sequence[NeuronId]) -> Float[Tensor, " row"]:
    """Pick the values of some neurons."""
    return values[[name.layer for name in names], [name.neuron for name in names]]


@dataclass(frozen=True, eq=False)
class Removed:
    """The neurons removed one at a time: their effects by position, NaN where none was removed."""

    pools: Mapping[int, Pool]
    effects: Mapping[int, Float[Tensor, "layer neuron"]]

    @property
    def many(self) -> int:
        """How many neurons were removed, each position counted."""
        return sum(int((~values.isnan()).sum()) for values in self.effects.values())

    def only(self, positions: Sequence[int]) -> "Removed":
        """Return what was removed at some of the positions."""
        return Removed(
            {position: self.pools[position] for position in positions},
            {position: self.effects[position] for position in positions},
        )

"""Remove neurons one at a time: the candidates that the gradient proposes, or every neuron."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.evidence.proposals import (
    CLOSE,
    NEAR,
    Pool,
    Removed,
    choose_candidates,
    choose_deciding,
    gather_pool,
    is_close,
)
from ffnprobe.evidence.query import Query
from ffnprobe.interventions.batches import Progress
from ffnprobe.models.provenance import Setting
from ffnprobe.names import NeuronId
from ffnprobe.tracing.path_tables import Source


@dataclass(frozen=True)
class Coverage:
    """How many neurons were removed, of how many, and how well their estimates agree with their effects.

    A neuron counts once for each position that was looked at. `pearson` and `spearman` correlate
    estimates and exact effects of the candidates; None where there is nothing to correlate.

    >>> import ffnprobe as fp
    >>> coverage = fp.explain(fp.load("pocket"), "Michael Jordan plays the sport of", top=3).coverage
    >>> coverage.removed < coverage.looked_at, coverage.pearson > 0.5
    (True, True)
    """

    removed: int
    looked_at: int
    candidates: int
    pearson: float | None
    spearman: float | None

    def settings(self) -> dict[str, Setting]:
        """Say it as settings of a provenance."""
        said: dict[str, Setting] = {"removed": f"{self.removed} of {self.looked_at}"}
        if self.pearson is not None and self.spearman is not None:
            said["agreement"] = {
                "pearson": round(self.pearson, 2), "spearman": round(self.spearman, 2),
            }  # fmt: skip
        return said

    def describe(self) -> str:
        """Say it in a line."""
        said = f"{self.removed:,} of {self.looked_at:,} neurons were removed"
        if self.pearson is None or self.spearman is None:
            return said
        return (
            f"{said}; on {self.candidates:,} candidates estimate and effect correlate at "
            f"{self.pearson:.2f} (Pearson), {self.spearman:.2f} (Spearman)"
        )


def remove_candidates(
    query: Query, earlier: Sequence[int], progress: Progress | None = None
) -> Removed:
    """Remove the candidates at the last position and at earlier ones, and their controls."""
    neurons = query.trace.model.config.neurons
    last = gather_pool(query, query.last, query.estimates[:, query.last])
    pools = [gather_pool(query, position, query.estimates[:, position]) for position in earlier]
    chosen = choose_candidates(query, [last], looked_at=neurons)
    chosen += choose_candidates(query, pools, looked_at=len(pools) * neurons)
    kept = {pool.position: _only(pool, chosen) for pool in (last, *pools)}
    found = query.remove_each([*chosen, *_at(last, choose_deciding(query, last))], progress)

    def list_doubtful(pool: Pool, within: float, control: Sequence[NeuronId]) -> list[Source]:
        looked_at = neurons if pool is last else len(pools) * neurons
        effects, own = _spread(query, found, pool.position), kept[pool.position]
        if not is_close(query, own, effects, looked_at=looked_at, within=within):
            return []
        return [one for one in _at(pool, control) if one not in found]

    more = list_doubtful(last, NEAR, last.control)
    for pool in pools:
        more += list_doubtful(pool, NEAR, choose_deciding(query, pool))
    found |= query.remove_each(more, progress)
    more = [one for pool in pools for one in list_doubtful(pool, CLOSE, pool.control)]
    found |= query.remove_each(more, progress)
    return Removed(kept, {position: _spread(query, found, position) for position in kept})


def remove_every(
    query: Query, earlier: Sequence[int], progress: Progress | None = None
) -> Iterator[Removed]:
    """Remove every neuron at the last position; at earlier ones whole pools and their controls.

    Yields what is known after each layer; the last has all.
    """
    for swept in query.sweep(progress):
        last = {query.last: swept.values}
        if swept.values.isnan().any():
            yield Removed({}, last)
    pools = {query.last: gather_pool(query, query.last, swept.values)}
    pools |= {
        position: gather_pool(query, position, query.estimates[:, position]) for position in earlier
    }
    sources = [
        (name, position)
        for position in earlier
        for name in (*pools[position].names, *pools[position].control)
    ]
    found = query.remove_each(sources) if sources else {}
    yield Removed(pools, last | {position: _spread(query, found, position) for position in earlier})


def measure_coverage(query: Query, removed: Removed) -> Coverage:
    """Count what was removed, and correlate the candidates' estimates with their effects."""
    import pandas as pd

    rows = [
        (float(query.estimates[n.layer, position, n.neuron]), float(effects[n.layer, n.neuron]))
        for position, effects in removed.effects.items()
        for n in removed.pools[position].names
    ]
    table = pd.DataFrame(rows, columns=["estimate", "effect"])
    has_both = bool((table.nunique() > 1).all())
    return Coverage(
        removed=removed.many,
        looked_at=len(removed.effects) * query.trace.model.config.neurons,
        candidates=len(table),
        pearson=float(table.corr().to_numpy()[0, 1]) if has_both else None,
        spearman=float(table.corr(method="spearman").to_numpy()[0, 1]) if has_both else None,
    )


def _at(pool: Pool, names: Sequence[NeuronId]) -> list[Source]:
    return [(name, pool.position) for name in names]


def _only(pool: Pool, chosen: Sequence[Source]) -> Pool:
    """Leave those in a pool that were chosen."""
    names = [name for name, position in chosen if position == pool.position]
    return Pool(pool.position, names, pool.control)


def _spread(
    query: Query, found: dict[Source, float], position: int
) -> Float[Tensor, "layer neuron"]:
    """Put the effects at a position in their cells, NaN elsewhere."""
    values = torch.full_like(query.z, float("nan"))
    for (name, where), effect in found.items():
        if where == position:
            values[name.layer, name.neuron] = effect
    return values

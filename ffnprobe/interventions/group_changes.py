"""Make groups of changes at any positions, each group by itself, with as few rows as the groups differ.

    effect = the answer on the clean prompt − the answer with all changes of a group

Two things are shared. Groups are one row of a batch until they differ: a group joins in the layer of its
first change, as a copy of the row that has made the same changes before. And a group that is another one
with more changes at later positions is the same before these: it is replayed from the first of them on,
behind the keys and values of the other one's row (a twin).

Groups that begin at different positions share the products of a batch; each is compared with a clean row
that begins where it does. What is known to do nothing is not replayed and has the effect 0.
"""

from collections.abc import Sequence

import torch

from ffnprobe.interventions.batches import gather_batches
from ffnprobe.interventions.readout import AnswerValues, Readout
from ffnprobe.interventions.sweeps import Change, set_activations


def sweep_changes(readout: Readout, groups: Sequence[Sequence[Change]]) -> AnswerValues:
    """Give neurons at positions new activations, all of a group together, for each group in turn."""
    replay = readout.replay
    groups = _drop_idle(readout, groups)
    own = [number for number, group in enumerate(groups) if group]
    found = torch.zeros(len(groups), dtype=replay.trace.final.dtype)
    logs = torch.zeros(len(groups)) if readout.has_log_probability else None
    starts = [min(c.position for c in groups[number]) for number in own]
    for chosen in gather_batches(replay, starts):
        batch = [own[number] for number in chosen]
        for numbers, lost in _replay(readout, [groups[number] for number in batch]):
            rows = [batch[number] for number in numbers]
            found[rows] = lost.logit.to(found)
            if logs is not None and lost.log_probability is not None:
                logs[rows] = lost.log_probability.to(logs)
    return AnswerValues(found, logs)


def _replay(
    readout: Readout, groups: Sequence[Sequence[Change]]
) -> list[tuple[list[int], AnswerValues]]:
    """Replay one batch: what groups lose, with their numbers."""
    replay, layers = readout.replay, readout.replay.model.config.layers
    layer, length = min(c.layer for group in groups for c in group), len(replay.trace)
    twins = find_twins(groups)
    begun: dict[int, list[int]] = {}
    behind: dict[tuple[int, int], list[int]] = {}
    for number, group in enumerate(groups):
        start = min(c.position for c in group)
        if number in twins:
            behind.setdefault((start, twins[number][1]), []).append(number)
        else:
            begun.setdefault(start, []).append(number)
    forks = {start: Forks([groups[n] for n in numbers]) for start, numbers in begun.items()}
    hosts = list(begun)
    starts = [*hosts, *(first for _, first in behind)]
    streams = [replay.entering(layer, start=start)[None] for start in starts]
    for number, twin in enumerate(behind.values(), start=len(hosts)):
        streams[number] = streams[number].repeat(1 + len(twin), 1, 1)
    for number in range(layer, layers):
        for stream, start in enumerate(hosts):
            streams[stream] = streams[stream][forks[start].divide(number)]
        made: list[Sequence[Sequence[Change]]] = [forks[start].made for start in hosts]
        made += [[groups[n] for n in twin] for twin in behind.values()]
        rows = {n: forks[s].rows[at] for s, own in begun.items() for at, n in enumerate(own)}
        seen = {
            stream: (hosts.index(start), [0, *(rows[twins[n][0]] for n in twin)])
            for stream, ((start, _), twin) in enumerate(behind.items(), start=len(hosts))
        }
        # Of the last layer only the positions that are read are needed.
        streams = replay.advance_all(
            streams, starts, layer=number, edits=[set_activations(each, length) for each in made],
            first=readout.first if number == layers - 1 else 0, behind=seen,
        )  # fmt: skip
    values = readout.replayed(torch.cat(streams), layer=layers, start=readout.first)
    found = []
    own_rows = [forks[start].rows for start in hosts]
    own_rows += [list(range(1, 1 + len(twin))) for twin in behind.values()]
    for each, numbers, chosen in zip(streams, [*begun.values(), *behind.values()], own_rows, strict=True):  # fmt: skip
        part, values = values.part(slice(0, len(each))), values.part(slice(len(each), None))
        found.append((numbers, part.part(slice(0, 1)).less(part.part(chosen))))
    return found


def find_twins(groups: Sequence[Sequence[Change]]) -> dict[int, tuple[int, int]]:
    """Find groups that are another one with more changes at later positions.

    Returns, by the number of a group, that of the other and the first position at which they differ.

    >>> one, other = Change(1, 2, 5, 0.0), Change(3, 4, 7, 0.0)
    >>> find_twins([[one], [other, one], [other]])
    {1: (0, 4)}
    """
    known = {frozenset(group): number for number, group in enumerate(groups)}
    twins: dict[int, tuple[int, int]] = {}
    for number, group in enumerate(groups):
        for first in sorted({c.position for c in group}, reverse=True):
            other = known.get(frozenset(c for c in group if c.position < first))
            if other is not None:
                twins[number] = (other, first)
                break
    # Another's twin has no row of its own from the beginning.
    return {number: twin for number, twin in twins.items() if twin[0] not in twins}


class Forks:
    """Which rows of a batch the groups need, layer by layer; the first is clean.

    `made` are the changes that each row but the first has made so far, `rows` the row of each group.

    >>> one, other = Change(1, 0, 5, 0.0), Change(3, 0, 7, 0.0)
    >>> forks = Forks([[one], [one, other]])
    >>> forks.divide(0), forks.divide(1), forks.divide(2), forks.divide(3)
    ([0], [0, 0], [0, 1], [0, 1, 1])
    >>> forks.rows
    [1, 2]
    """

    def __init__(self, groups: Sequence[Sequence[Change]]) -> None:
        self._groups = [sorted(group) for group in groups]
        self.made: list[tuple[Change, ...]] = []
        self.rows = [0] * len(groups)

    def divide(self, layer: int) -> list[int]:
        """Go on to a layer; return, of each row that it needs, the row that it is a copy of."""
        sources: dict[tuple[Change, ...], int] = {(): 0}
        for group, row in zip(self._groups, self.rows, strict=True):
            sources.setdefault(tuple(c for c in group if c.layer <= layer), row)
        numbers = {made: row for row, made in enumerate(sources)}
        self.rows = [numbers[tuple(c for c in group if c.layer <= layer)] for group in self._groups]
        self.made = list(sources)[1:]
        return list(sources.values())


def _drop_idle(readout: Readout, groups: Sequence[Sequence[Change]]) -> list[list[Change]]:
    """Drop the changes that cannot change the answer."""
    own, last = readout.replay.trace.activations, readout.replay.model.config.layers - 1
    every = [change for group in groups for change in group]
    at = torch.tensor([change[:3] for change in every], dtype=torch.long).reshape(-1, 3)
    before = iter(own[at[:, 0], at[:, 1], at[:, 2]].tolist())
    return [
        [c for c in group if next(before) != c.value and (c.layer < last or c.position >= readout.first)]
        for group in groups
    ]  # fmt: skip

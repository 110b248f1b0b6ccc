"""Many variants of one prompt: every neuron, every layer at every position, groups of changes.

    effect = the answer on the clean prompt − the answer with the change

One idea serves them all: **a variant joins a batch where it first differs**. Its changes in the first layer
that it changes move the stream that leaves this layer; so, as soon as that layer has run, it joins as a copy
of the clean row that begins at its first position, moved. Its changes in later layers are made as these run.
All rows of a layer share its matrix products, wherever they join, and earlier positions are not run again.

Both sides of an effect are rows of one batch, so that the rounding they share cancels. Rows of a matrix
product may still round differently, so what is known to do nothing is not replayed and has the effect 0:
an activation that is put back, and a change in the last layer at a position that is not read, which no
head carries further. Memory is bounded: the widest tensor of a batch holds at most `NUMBERS_AT_ONCE` numbers.

Replacements are `[layer pos neuron]`, or with one position for all.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import torch
from einops import einsum
from jaxtyping import Bool, Float
from torch import Tensor

from ffnprobe.arguments import Progress
from ffnprobe.interventions.replay import AnswerValues, Edit, Readout, Replay, advance
from ffnprobe.models.step import Stream
from ffnprobe.tracing.trace import Trace

NUMBERS_AT_ONCE = 2**24

Replacement = Float[Tensor, "layer #pos neuron"]


class Change(NamedTuple):
    """A neuron at a position, and the activation it is given."""

    layer: int
    position: int
    neuron: int
    value: float


Group = Sequence[Change]
# The numbers of some variants, the clean final stream where the answer is read, and theirs.
Replayed = Iterator[tuple[list[int], Stream, Stream]]


class Variant(NamedTuple):
    """The layer and position at which a variant joins, its changes there, and those of later layers."""

    layer: int
    start: int
    joining: Group = ()
    later: Group = ()


def sweep_changes(readout: Readout, groups: Sequence[Group]) -> AnswerValues:
    """Give neurons at positions new activations, all of a group together, for each group in turn."""
    return _measure(readout, len(groups), _replay_groups(readout, groups))


def replay_changes(
    readout: Readout, groups: Sequence[Group]
) -> Float[Tensor, "group piece d_model"]:
    """Return the final stream where the answer is read, with all changes of each group made."""
    replay = readout.replay
    final = replay.entering(replay.model.config.layers, start=readout.first)
    streams = final.repeat(len(groups), 1, 1)
    for numbers, _, changed in _replay_groups(readout, groups):
        streams[numbers] = changed
    return streams


def replay_prompts(
    readouts: Sequence[Readout], groups: Sequence[Sequence[Group]]
) -> Iterator[Float[Tensor, "group piece d_model"]]:
    """Do what `replay_changes` does, for several prompts: as many at a time as fit."""
    layers = readouts[0].replay.model.config.layers
    changes = [[change for group in each for change in group] for each in groups]
    starts = [
        min((change.position for change in each), default=readout.first)
        for each, readout in zip(changes, readouts, strict=True)
    ]
    widths = [
        (1 + len(each)) * _width(readout.replay, start)
        for each, readout, start in zip(groups, readouts, starts, strict=True)
    ]
    for batch in _gather(widths):
        if len(batch) == 1:  # it may be one that does not fit
            yield replay_changes(readouts[batch[0]], groups[batch[0]])
            continue
        chosen, begins = [readouts[n] for n in batch], [starts[n] for n in batch]
        first = min((change.layer for n in batch for change in changes[n]), default=layers)
        edits = [set_activations(groups[n], len(readouts[n].replay.trace)) for n in batch]
        streams = [
            readouts[n].replay.entering(first, start=starts[n]).repeat(1 + len(groups[n]), 1, 1)
            for n in batch
        ]
        for layer in range(first, layers):
            streams = advance(
                [readout.replay for readout in chosen], streams, begins, layer=layer, edits=edits,
                firsts=[readout.first if layer == layers - 1 else 0 for readout in chosen],
            )  # fmt: skip
        for readout, stream in zip(chosen, streams, strict=True):
            yield stream[1:, readout.first - len(readout.replay.trace) :]


def sweep_moves(
    readout: Readout,
    places: Sequence[tuple[int, int]],
    moves: Float[Tensor, "variant pos d_model"],
    *,
    progress: Progress | None = None,
) -> AnswerValues:
    """Move the stream that leaves a layer, from a position on, for each layer and position in turn."""
    last, is_acting = readout.replay.model.config.layers - 1, moves.flatten(1).any(dim=-1).tolist()
    for row, (layer, start) in enumerate(places):
        if layer == last and start < readout.first:
            is_acting[row] = bool(moves[row, readout.first - start :].any())
    variants = {row: Variant(*place) for row, place in enumerate(places) if is_acting[row]}
    replayed = _replay_all(readout, variants, moves.__getitem__, len(places), progress)
    return _measure(readout, len(places), replayed)


def sweep_neurons(
    readout: Readout,
    replacement: Replacement,
    *,
    positions: list[int],
    chosen: Bool[Tensor, "layer neuron"],
    progress: Progress | None = None,
) -> AnswerValues:
    """Replace each chosen neuron by itself, at all the positions: `[layer neuron]`, NaN for the others."""
    replay, start = readout.replay, positions[0]
    gaps = (replacement - replay.trace.activations)[:, positions]
    inside = [position - start for position in positions]
    batches, done, total = list[AnswerValues](), 0, int(chosen.sum())
    for layer in chosen.any(dim=-1).nonzero()[:, 0].tolist():
        for neurons in torch.split(chosen[layer].nonzero()[:, 0], _count_at_once(replay, start)):
            shifts = einsum(
                replay.held(gaps[layer][:, neurons]), replay.held(replay.model.rows[layer][neurons]),
                "pos variant, variant d_model -> variant pos d_model",
            )  # fmt: skip
            moves = shifts.new_zeros(len(neurons), inside[-1] + 1, shifts.shape[-1])
            moves[:, inside] = replay.moved(layer, positions, shifts)
            batches.append(sweep_moves(readout, [(layer, start)] * len(neurons), moves))
            done += len(neurons)
            if progress is not None:
                progress(done, total)

    def spread(values: Tensor) -> Tensor:
        return values.new_full(chosen.shape, float("nan")).masked_scatter(chosen, values)

    return _join(batches).lay_out(spread)


def sweep_layers(
    readout: Readout,
    replacement: Replacement,
    *,
    positions: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> AnswerValues:
    """Replace a whole MLP layer at one position, for each in turn (by default all): `[layer pos]`."""
    replay, length = readout.replay, readout.first + 1
    layers, chosen = range(replay.model.config.layers), list(positions or range(length))
    values = replacement.expand_as(replay.trace.activations)[:, :length]
    moves = [replay.replaced(layer, values[layer])[chosen] for layer in layers]
    places = [(layer, position) for layer in layers for position in chosen]
    effects = sweep_moves(readout, places, torch.cat(moves)[:, None], progress=progress)
    return effects.lay_out(lambda every: every.reshape(len(layers), -1))


def sweep_sets(
    readout: Readout,
    replacement: Replacement,
    sets: Iterable[Bool[Tensor, "layer pos neuron"]],
    *,
    start: int,
) -> AnswerValues:
    """Replace all that a set marks together, from a position on, for each of any number of sets.

    For sets of many neurons; what a few lists of changes do is `sweep_changes`.
    """
    activations, many = readout.replay.trace.activations, _count_at_once(readout.replay, start)
    values, remaining, batches = replacement.expand_as(activations), iter(sets), []
    while batch := list(islice(remaining, many)):
        masks = torch.stack(batch) & (values != activations)
        masks[:, -1, : readout.first] = False
        batches.append(_measure(readout, len(batch), _replay_sets(readout, values, masks, start)))
    return _join(batches)


def _replay_sets(
    readout: Readout, values: Tensor, masks: Bool[Tensor, "set layer pos neuron"], start: int
) -> Replayed:
    """Replay the sets of one batch that mark anything, all from the first layer that one marks."""
    rows, replay = masks.flatten(1).any(dim=1).nonzero()[:, 0].tolist(), readout.replay
    if not rows:
        return
    layer = int(masks.flatten(2).any(dim=-1).any(dim=0).int().argmax())
    acting = masks[rows, :, start:].to(replay.model.device)
    acting = torch.cat([torch.zeros_like(acting[:1]), acting])  # the clean prompt first

    def edit(layer: int, activations: Tensor) -> Tensor:
        return torch.where(acting[:, layer], replay.held(values[layer, start:]), activations)

    streams = replay.entering(layer, start=start).repeat(len(acting), 1, 1)
    final = replay.finish(streams, layer=layer, start=start, edit=edit)[:, readout.first - start :]
    yield rows, final[:1], final[1:]


def mark_sets(
    trace: Trace, groups: Bool[Tensor, "group layer neuron"], positions: Sequence[int]
) -> Iterator[Bool[Tensor, "layer pos neuron"]]:
    """Mark each group's neurons at positions."""
    is_at = torch.zeros(len(trace), 1, dtype=torch.bool)
    is_at[list(positions)] = True
    return (group[:, None] & is_at for group in groups)


def _count_at_once(replay: Replay, start: int) -> int:
    """Say how many variants fit in one batch."""
    return max(1, NUMBERS_AT_ONCE // _width(replay, start))


def _join(batches: Sequence[AnswerValues]) -> AnswerValues:
    """Put values of several batches one after the other."""
    logs = [values.log_probability for values in batches if values.log_probability is not None]
    return AnswerValues(
        torch.cat([values.logit for values in batches]), torch.cat(logs) if logs else None
    )


def set_activations(groups: Sequence[Group], length: int) -> Edit:
    """Build the edit that makes each group's changes in its own variant, after the clean one.

    Activations are of the last positions of so many; a change before those is not read any more.
    """
    by_layer: dict[int, list[tuple[int, Change]]] = {}
    for variant, group in enumerate(groups, start=1):
        for change in group:
            by_layer.setdefault(change.layer, []).append((variant, change))

    def edit(layer: int, activations: Tensor) -> Tensor:
        start = length - activations.shape[1]
        rows = [
            (variant, c.position - start, c.neuron, c.value)
            for variant, c in by_layer.get(layer, ())
            if c.position >= start
        ]
        if not rows:
            return activations
        *cells, values = map(torch.tensor, zip(*rows, strict=True))
        return activations.index_put(tuple(cells), values.to(activations))

    return edit


def _drop_idle(readout: Readout, groups: Sequence[Group]) -> list[list[Change]]:
    """Drop the changes that cannot change the answer."""
    activations, last = readout.replay.trace.activations, readout.replay.model.config.layers - 1
    cells = torch.tensor([c[:3] for group in groups for c in group], dtype=torch.long)
    before = iter(activations[tuple(cells.reshape(-1, 3).unbind(dim=1))].tolist())
    return [
        [c for c in group if next(before) != c.value and (c.layer < last or c.position >= readout.first)]
        for group in groups
    ]  # fmt: skip


def _width(replay: Replay, start: int) -> int:
    """Count the numbers of a variant's widest tensor: its neurons or its attention patterns."""
    config, length = replay.model.config, len(replay.trace)
    return (length - start) * max(config.d_mlp, config.heads * length)


def _gather(widths: Sequence[int]) -> list[list[int]]:
    """Put things of these widths, by their number, in batches that fit."""
    batches, room = list[list[int]](), 0
    for number, width in enumerate(widths):
        if not batches or room < width:
            batches.append([])
            room = NUMBERS_AT_ONCE
        batches[-1].append(number)
        room -= width
    return batches


def _replay_groups(readout: Readout, groups: Sequence[Group]) -> Replayed:
    """Replay groups of changes, each by itself."""
    variants: dict[int, Variant] = {}
    for number, group in enumerate(_drop_idle(readout, groups)):
        if group:
            layer, start = min(c.layer for c in group), min(c.position for c in group)
            joining = [c for c in group if c.layer == layer]
            later = [c for c in group if c.layer > layer]
            variants[number] = Variant(layer, start, joining, later)

    return _replay_all(
        readout, variants, lambda batch: _move(readout.replay, [variants[n] for n in batch]),
        len(groups),
    )  # fmt: skip


def _replay_all(
    readout: Readout,
    variants: Mapping[int, Variant],
    move: Callable[[list[int]], Float[Tensor, "variant pos d_model"]],
    total: int,
    progress: Progress | None = None,
) -> Replayed:
    """Replay variants by their number, as many at a time as fit; those of the total left out do nothing."""
    order = sorted(variants, key=lambda number: (variants[number].start, variants[number].layer))
    widths = [_width(readout.replay, variants[number].start) for number in order]
    done = total - len(variants)
    for places in _gather(widths):
        batch = [order[place] for place in places]
        for rows, clean, final in _replay(readout, [variants[n] for n in batch], move(batch)):
            yield [batch[row] for row in rows], clean, final
        done += len(batch)
        if progress is not None:
            progress(done, total)


def _move(replay: Replay, variants: Sequence[Variant]) -> Float[Tensor, "variant pos d_model"]:
    """Return how far the changes of each variant's first layer move the stream, from its position on."""
    span = 1 + max(c.position - one.start for one in variants for c in one.joining)
    model, trace = replay.model, replay.trace
    moves = replay.held(torch.zeros(len(variants), span, model.config.d_model))
    for layer, start in dict.fromkeys(one[:2] for one in variants):
        rows = [row for row, one in enumerate(variants) if one[:2] == (layer, start)]
        changes = [(order, c) for order, row in enumerate(rows) for c in variants[row].joining]
        neurons = [c.neuron for _, c in changes]
        values = torch.tensor([c.value for _, c in changes]).to(trace.activations)
        gaps = values - trace.activations[layer, [c.position for _, c in changes], neurons]
        wide = min(span, len(trace) - start)
        cells = torch.tensor([order * wide + c.position - start for order, c in changes])
        shifts = moves.new_zeros(len(rows) * wide, moves.shape[-1])
        answers = replay.held(model.rows[layer][neurons])
        shifts.index_add_(0, cells.to(shifts.device), replay.held(gaps)[:, None] * answers)
        shifts = shifts.reshape(len(rows), wide, -1)
        moves[rows, :wide] = replay.moved(layer, range(start, start + wide), shifts)
    return moves


def _replay(
    readout: Readout, variants: Sequence[Variant], moves: Float[Tensor, "variant pos d_model"]
) -> Replayed:
    """Replay one batch, in order of position and layer: for each position its rows, clean and changed."""
    replay, length = readout.replay, len(readout.replay.trace)
    layers, first = replay.model.config.layers, min(one.layer for one in variants)
    by_start: dict[int, list[int]] = {}
    for row, one in enumerate(variants):
        by_start.setdefault(one.start, []).append(row)
    starts, many, edits = list(by_start), len(by_start), None
    if any(one.later for one in variants):
        later = [[variants[row].later for row in rows] for rows in by_start.values()]
        edits = [set_activations(groups, length) for groups in later]
    streams = [replay.entering(first + 1, start=start)[None] for start in starts]
    for layer in range(first, layers):
        if layer > first:
            firsts = [readout.first] * many if layer == layers - 1 else None
            streams = advance(
                [replay] * many, streams, starts, layer=layer, edits=edits, firsts=firsts
            )
        for number, (start, rows) in enumerate(by_start.items()):
            if own := [row for row in rows if variants[row].layer == layer]:
                clean = streams[number][:1]
                dropped = length - clean.shape[1] - start
                moved = moves[own, dropped : dropped + clean.shape[1]]
                joining = clean.repeat(len(own), 1, 1)
                joining[:, : moved.shape[1]] += moved
                streams[number] = torch.cat([streams[number], joining])
    for rows, stream in zip(by_start.values(), streams, strict=True):
        final = stream[:, readout.first - length :]
        yield rows, final[:1], final[1:]


def _measure(readout: Readout, many: int, replayed: Replayed) -> AnswerValues:
    """Measure what the answer loses in each of so many variants: nothing where one is not replayed."""
    logit = torch.zeros(many, dtype=readout.replay.trace.final.dtype)
    effects = AnswerValues(logit, torch.zeros_like(logit) if readout.has_log_probability else None)
    for rows, clean, final in replayed:
        values = readout.values(torch.cat([clean, final]), start=readout.first)
        for effect, value in zip(effects, values, strict=True):
            if effect is not None and value is not None:
                effect[rows] = (value[:1] - value[1:]).to(effect)
    return effects

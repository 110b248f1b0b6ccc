"""Change one thing at a time, exactly: each neuron, each MLP layer at each position, each group.

To give neuron n of layer l the activation r instead of a adds (r − a) w_n to the stream that
leaves layer l (through the norm its MLP writes through, if it has one); nothing else of that layer
changes. So all variants of a layer begin at the next
one, as one batch, and only at the positions from the first changed one on. The result is always

    effect = the answer on the clean prompt − the answer with the change

both replayed from the same layer on as rows of one batch, so that the rounding they share cancels.
Rows of a matrix product may still round differently, so what is known to do nothing is not replayed and
has the effect 0: an activation that is put back, and a change in the last layer at a position that is not
read, which no head carries further. Replacements are `[layer pos neuron]`, or with one position for all.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from einops import einsum
from jaxtyping import Bool, Float
from torch import Tensor

from ffnprobe.interventions.batches import count_at_once, join_values, lose
from ffnprobe.interventions.readout import AnswerValues, Readout
from ffnprobe.interventions.replay import Edit, Replay
from ffnprobe.interventions.single_changes import sweep_singles
from ffnprobe.options import Progress

Replacement = Float[Tensor, "layer #pos neuron"]


class Change(NamedTuple):
    """A neuron at a position, and the activation it is given."""

    layer: int
    position: int
    neuron: int
    value: float


def sweep_neurons(
    readout: Readout,
    replacement: Replacement,
    *,
    positions: list[int],
    chosen: Bool[Tensor, "layer neuron"],
    progress: Progress | None = None,
) -> Iterator[AnswerValues]:
    """Replace each chosen neuron by itself, at all the positions: yield a layer's effects at a time."""
    replay, start = readout.replay, positions[0]
    gaps = (replacement - replay.trace.activations)[:, positions]
    inside = [position - start for position in positions]
    acting = chosen & _find_acting(readout, replacement, positions)
    done, total = 0, int(chosen.sum())
    for layer in chosen.any(dim=-1).nonzero()[:, 0].tolist():
        found: list[AnswerValues] = []
        clean = replay.entering(layer + 1, start=start)
        own = acting[layer].nonzero()[:, 0]
        done += int(chosen[layer].sum()) - len(own)
        if progress is not None and not len(own):
            progress(done, total)
        for neurons in torch.split(own, count_at_once(replay, start)) if len(own) else ():
            streams = clean.repeat(1 + len(neurons), 1, 1)
            shifts = einsum(
                replay.held(gaps[layer][:, neurons]), replay.held(replay.model.rows[layer][neurons]),
                "pos variant, variant d_model -> variant pos d_model",
            )  # fmt: skip
            streams[:, inside] = replay.shifted(layer, positions, _after_none(shifts))
            found.append(lose(readout, streams, layer=layer + 1, start=start))
            done += len(neurons)
            if progress is not None:
                progress(done, total)
        yield _spread(readout, acting[layer][chosen[layer]], found)


def sweep_layers(
    readout: Readout,
    replacement: Replacement,
    *,
    positions: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> AnswerValues:
    """Replace a whole MLP layer at one position, for each layer and position (by default all) in turn."""
    replay, length = readout.replay, readout.first + 1
    layers, chosen = range(replay.model.config.layers), list(positions or range(length))
    given = replacement.expand_as(replay.trace.activations)[:, :length]
    moves = [replay.replaced(layer, given[layer])[chosen] for layer in layers]
    sites = [(layer, position) for layer in layers for position in chosen]
    return sweep_singles(readout, sites, torch.cat(moves), progress=progress)


def sweep_groups(
    readout: Readout,
    replacement: Replacement,
    *,
    positions: list[int],
    groups: Bool[Tensor, "group layer neuron"],
) -> AnswerValues:
    """Replace all neurons of a group together, at all the positions, for each group in turn."""
    replay, start = readout.replay, positions[0]
    groups = groups & _find_acting(readout, replacement, positions)
    is_acting = groups.flatten(1).any(dim=1)
    layer = int(groups.any(dim=0).any(dim=-1).int().argmax())  # the first that any group touches
    clean = replay.entering(layer, start=start)
    found = []
    own = groups[is_acting]
    for masks in torch.split(own, count_at_once(replay, start)) if len(own) else ():
        edit = _replace(replay, replacement, positions, _after_none(masks))
        streams = clean.repeat(1 + len(masks), 1, 1)
        found.append(lose(readout, streams, layer=layer, start=start, edit=edit))
    return _spread(readout, is_acting, found)


def set_activations(groups: Sequence[Sequence[Change]], length: int) -> Edit:
    """Build the edit that makes each group's changes in its own variant, after the clean one.

    Activations are of the last positions of so many; a change before those is not read any more.
    """

    def edit(layer: int, activations: Tensor) -> Tensor:
        start = length - activations.shape[1]
        made = [
            (variant, c.position - start, c.neuron, c.value)
            for variant, group in enumerate(groups, start=1)
            for c in group
            if c.layer == layer and c.position >= start
        ]
        if not made:
            return activations
        *sites, values = zip(*made, strict=True)
        changed = activations.clone()
        changed[tuple(torch.tensor(site) for site in sites)] = torch.tensor(values).to(changed)
        return changed

    return edit


def _find_acting(
    readout: Readout, replacement: Replacement, positions: list[int]
) -> Bool[Tensor, "layer neuron"]:
    """Find the neurons whose replacement can change the answer."""
    moves = (replacement != readout.replay.trace.activations)[:, positions]
    moves[-1] &= torch.tensor(positions)[:, None] >= readout.first
    return moves.any(dim=1).cpu()


def _spread(
    readout: Readout, is_acting: Bool[Tensor, " variant"], found: Sequence[AnswerValues]
) -> AnswerValues:
    """Give the values found to the variants that act; the others lose nothing."""
    logit = torch.zeros(len(is_acting), dtype=readout.replay.trace.final.dtype)
    logs = torch.zeros_like(logit) if readout.has_log_probability else None
    if found:
        values = join_values(found)
        logit[is_acting] = values.logit.to(logit)
        if logs is not None and values.log_probability is not None:
            logs[is_acting] = values.log_probability.to(logs)
    return AnswerValues(logit, logs)


def _after_none(changes: Tensor) -> Tensor:
    """Put a change of nothing in front of a batch of changes: the clean prompt is its first row."""
    return torch.cat([torch.zeros_like(changes[:1]), changes])


def _replace(
    replay: Replay,
    replacement: Replacement,
    positions: list[int],
    masks: Bool[Tensor, "variant layer neuron"],
) -> Edit:
    """Build the edit that gives each variant's masked neurons their replacement at the positions."""
    start = positions[0]
    given = replacement.expand(-1, len(replay.trace), -1)
    masks = masks.to(replay.model.device)
    is_changed = torch.zeros(len(replay.trace), 1, dtype=torch.bool, device=masks.device)
    is_changed[positions] = True

    def edit(layer: int, activations: Tensor) -> Tensor:
        where = masks[:, layer, None] & is_changed[start:]
        # What a neuron has already is put back as the clean row has it, to the last bit.
        is_own = given[layer, start:] == replay.trace.activations[layer, start:]
        stand_in = torch.where(
            is_own.to(activations.device), activations[:1], replay.held(given[layer, start:])
        )
        return torch.where(where, stand_in, activations)

    return edit

"""Change one thing at a time, exactly: each neuron, each MLP layer at each position, each group.

To give neuron n of layer l the activation r instead of a adds (r − a) w_n to the stream that
leaves layer l (through the norm its MLP writes through, if it has one); nothing else of that layer
changes. So all variants of a layer begin at the next
one, as one batch, and only at the positions from the first changed one on. The result is always

    effect = the answer on the clean prompt − the answer with the change

both replayed from the same layer on as rows of one batch, so that the rounding they share cancels: a
change that changes nothing has the effect 0. Replacements are
`[layer pos neuron]`, or with one position for all.

Memory is bounded: the widest tensor of a batch holds at most `NUMBERS_AT_ONCE` numbers.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from einops import einsum
from jaxtyping import Bool, Float
from torch import Tensor

from ffnprobe.interventions.readout import AnswerValues, Readout
from ffnprobe.interventions.replay import Edit, Replay, Stream
from ffnprobe.models.arithmetic import cap

Progress = Callable[[int, int], None]  # how many are done, of how many
Replacement = Float[Tensor, "layer #pos neuron"]
NUMBERS_AT_ONCE = 2**24


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
    done, total = 0, int(chosen.sum())
    for layer in chosen.any(dim=-1).nonzero()[:, 0].tolist():
        found: list[AnswerValues] = []
        clean = replay.entering(layer + 1, start=start)
        for neurons in torch.split(chosen[layer].nonzero()[:, 0], _at_once(replay, start)):
            streams = clean.repeat(1 + len(neurons), 1, 1)
            shifts = einsum(
                replay.held(gaps[layer][:, neurons]), replay.held(replay.model.rows[layer][neurons]),
                "pos variant, variant d_model -> variant pos d_model",
            )  # fmt: skip
            streams[:, inside] = replay.shifted(layer, positions, _after_none(shifts))
            found.append(_lose(readout, streams, layer=layer + 1, start=start))
            done += len(neurons)
            if progress is not None:
                progress(done, total)
        yield join_values(found)


def sweep_layers(
    readout: Readout, replacement: Replacement, *, progress: Progress | None = None
) -> AnswerValues:
    """Replace a whole MLP layer at one position, for each layer and position in turn."""
    replay = readout.replay
    layers, positions = replay.model.config.layers, torch.arange(readout.first + 1)
    found: list[AnswerValues] = []
    for layer in range(layers):
        gaps = replacement[layer] - replay.trace.activations[layer]
        pattern = "pos neuron, neuron d_model -> pos d_model"
        shifts = einsum(replay.held(gaps), replay.held(replay.model.rows[layer]), pattern)
        for batch in torch.split(positions, _at_once(replay, 0)):
            start = int(batch[0])
            clean = replay.entering(layer + 1, start=start)
            unchanged = torch.zeros_like(shifts[: len(batch)])
            streams = clean.repeat(1 + len(batch), 1, 1)
            streams[:, batch - start] = replay.shifted(layer, batch.tolist(), unchanged)
            changed = replay.shifted(layer, batch.tolist(), shifts[batch])
            streams[range(1, 1 + len(batch)), batch - start] = changed
            found.append(_lose(readout, streams, layer=layer + 1, start=start))
        if progress is not None:
            progress(layer + 1, layers)
    return join_values(found)


def sweep_groups(
    readout: Readout,
    replacement: Replacement,
    *,
    positions: list[int],
    groups: Bool[Tensor, "group layer neuron"],
) -> AnswerValues:
    """Replace all neurons of a group together, at all the positions, for each group in turn."""
    replay, start = readout.replay, positions[0]
    layer = int(groups.any(dim=0).any(dim=-1).int().argmax())  # the first that any group touches
    clean = replay.entering(layer, start=start)
    found = []
    for masks in torch.split(groups, _at_once(replay, start)):
        edit = _replace(replay, replacement, positions, _after_none(masks))
        streams = clean.repeat(1 + len(masks), 1, 1)
        found.append(_lose(readout, streams, layer=layer, start=start, edit=edit))
    return join_values(found)


def sweep_changes(readout: Readout, groups: Sequence[Sequence[Change]]) -> AnswerValues:
    """Give neurons at positions new activations, all of a group together, for each group in turn."""
    replay, every = readout.replay, [change for group in groups for change in group]
    layer, start = min(c.layer for c in every), min(c.position for c in every)
    clean, size = replay.entering(layer, start=start), _at_once(replay, start)
    found = []
    for first in range(0, len(groups), size):
        batch = groups[first : first + size]
        streams = clean.repeat(1 + len(batch), 1, 1)
        edit = _set(batch, start)
        found.append(_lose(readout, streams, layer=layer, start=start, edit=edit))
    return join_values(found)


def change_logits(
    replay: Replay, groups: Sequence[Sequence[Change]]
) -> Float[Tensor, "variant vocab"]:
    """Make each group's changes and return the logits after the prompt; the first row is clean."""
    every = [change for group in groups for change in group]
    layer, start = min(c.layer for c in every), min(c.position for c in every)
    clean, size = replay.entering(layer, start=start), _at_once(replay, start)
    unembedding, bias = (
        replay.held(t) for t in (replay.model.unembedding, replay.model.unembedding_bias)
    )
    found = []
    for first in range(0, len(groups), size):
        batch = groups[first : first + size]
        streams = clean.repeat(1 + len(batch), 1, 1)
        final = replay.finish(streams, layer=layer, start=start, edit=_set(batch, start))
        seen = replay.normalise(final[0 if first == 0 else 1 :, -1])
        found.append(cap(replay.model, torch.nn.functional.linear(seen, unembedding, bias)).cpu())
    return torch.cat(found)


def _set(groups: Sequence[Sequence[Change]], start: int) -> Edit:
    """Build the edit that makes each group's changes in its own variant, after the clean one."""

    def edit(layer: int, activations: Tensor) -> Tensor:
        made = [
            (variant, c.position - start, c.neuron, c.value)
            for variant, group in enumerate(groups, start=1)
            for c in group
            if c.layer == layer
        ]
        if not made:
            return activations
        *places, values = zip(*made, strict=True)
        changed = activations.clone()
        changed[tuple(torch.tensor(place) for place in places)] = torch.tensor(values).to(changed)
        return changed

    return edit


def _after_none(changes: Tensor) -> Tensor:
    """Put a change of nothing in front of a batch of changes: the clean prompt is its first row."""
    return torch.cat([torch.zeros_like(changes[:1]), changes])


def _lose(
    readout: Readout, streams: Stream, *, layer: int, start: int, edit: Edit | None = None
) -> AnswerValues:
    """Replay streams from a layer on, the clean one first; return what each of the others loses."""
    found = readout.replayed(streams, layer=layer, start=start, edit=edit)
    lost = found.part(slice(0, 1)).less(found.part(slice(1, None)))
    return AnswerValues(lost.logit.to(streams.dtype), lost.log_probability)


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


def _at_once(replay: Replay, start: int) -> int:
    """Say how many variants fit in one batch: neurons or attention patterns are the widest."""
    config, length = replay.model.config, len(replay.trace)
    return max(1, NUMBERS_AT_ONCE // ((length - start) * max(config.d_mlp, config.heads * length)))


def join_values(parts: Sequence[AnswerValues]) -> AnswerValues:
    """Put values of several batches one after the other."""
    logs = [r.log_probability for r in parts if r.log_probability is not None]
    return AnswerValues(torch.cat([r.logit for r in parts]), torch.cat(logs) if logs else None)

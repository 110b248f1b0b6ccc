"""Change one thing at a time, exactly: each neuron, each MLP layer at each position, each group.

To give neuron n of layer l the activation r in place of a adds (r − a) w_n to the stream that
leaves layer l (through the norm its MLP writes through, if it has one); nothing else of that layer
changes. So all variants of a layer begin at the next
one, as one batch, and only at the positions from the first changed one on. The result is always

    effect = the answer on the clean prompt − the answer with the change

both replayed from the same layer on, so that the rounding they share cancels. Replacements are
`[layer pos neuron]`, or with one position for all.

Memory is bounded: the widest tensor of a batch holds at most `NUMBERS_AT_ONCE` numbers.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from einops import einsum
from jaxtyping import Bool, Float
from torch import Tensor

from ffnprobe.interventions.readout import AnswerValues, Readout
from ffnprobe.interventions.replay import Edit, Replay, Stream

Progress = Callable[[int, int], None]  # how many are done, of how many
Replacement = Float[Tensor, "layer #pos neuron"]
NUMBERS_AT_ONCE = 2**24


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
            streams = clean.repeat(len(neurons), 1, 1)
            shifts = einsum(
                replay.held(gaps[layer][:, neurons]), replay.held(replay.model.rows[layer][neurons]),
                "pos variant, variant d_model -> variant pos d_model",
            )  # fmt: skip
            streams[:, inside] = replay.shifted(layer, positions, shifts)
            found.append(_lose(readout, clean, streams, layer=layer + 1, start=start))
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
            streams = clean.repeat(len(batch), 1, 1)
            changed = replay.shifted(layer, batch.tolist(), shifts[batch])
            streams[range(len(batch)), batch - start] = changed
            found.append(_lose(readout, clean, streams, layer=layer + 1, start=start))
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
        edit = _replace(replay, replacement, positions, masks)
        streams = clean.repeat(len(masks), 1, 1)
        found.append(_lose(readout, clean, streams, layer=layer, start=start, edit=edit))
    return join_values(found)


def _lose(
    readout: Readout,
    clean: Float[Tensor, "pos d_model"],
    streams: Stream,
    *,
    layer: int,
    start: int,
    edit: Edit | None = None,
) -> AnswerValues:
    """Replay the clean stream and its variants from a layer on; return what each variant loses."""
    before = readout.replayed(clean[None], layer=layer, start=start)
    return before.less(readout.replayed(streams, layer=layer, start=start, edit=edit))


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
        return torch.where(where, replay.held(given[layer, start:]), activations)

    return edit


def _at_once(replay: Replay, start: int) -> int:
    """Say how many variants fit in one batch: neurons or attention patterns are the widest."""
    config, length = replay.model.config, len(replay.trace)
    return max(1, NUMBERS_AT_ONCE // ((length - start) * max(config.d_mlp, config.heads * length)))


def join_values(parts: Sequence[AnswerValues]) -> AnswerValues:
    """Put values of several batches one after the other."""
    logs = [r.log_probability for r in parts if r.log_probability is not None]
    return AnswerValues(torch.cat([r.logit for r in parts]), torch.cat(logs) if logs else None)

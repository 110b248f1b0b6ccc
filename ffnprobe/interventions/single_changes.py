"""Make many single changes in one pass: each variant joins the batch at the layer it changes.

A change of one neuron, or of a whole MLP, at layer l and position p moves what leaves layer l at p. Every
position that is changed has a clean row; a layer's variants join as copies of it, moved, as soon as that
layer has run. All rows of a layer share its matrix products, whatever position they begin at. So weights
are read once for the changes of all layers and positions, and few changes in many layers cost hardly more
than the arithmetic they need.

A variant is a copy of its clean row: the rounding they share cancels, and a move of zero has the effect 0.
Two kinds of change are known to do nothing and are not replayed: a move of zero, and one in the last layer
at a position that is not read, which no head carries further.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.interventions.batches import gather_batches, join_values, lose
from ffnprobe.interventions.readout import AnswerValues, Readout
from ffnprobe.options import Progress

Site = tuple[int, int]  # a layer, and a position


def sweep_singles(
    readout: Readout,
    sites: Sequence[Site],
    moves: Float[Tensor, "variant d_model"],
    *,
    progress: Progress | None = None,
) -> AnswerValues:
    """Move the stream that leaves a layer at a position, for each site in turn: what the answer loses."""
    found = torch.zeros(len(sites), dtype=moves.dtype)
    logs = torch.zeros(len(sites)) if readout.has_log_probability else None
    batches = _gather(readout, sites, moves.any(dim=-1).tolist())
    done = len(sites) - sum(map(len, batches))
    for batch in batches:
        lost = _replay(readout, [sites[one] for one in batch], moves[batch])
        found[batch] = lost.logit.to(found)
        if logs is not None and lost.log_probability is not None:
            logs[batch] = lost.log_probability.to(logs)
        done += len(batch)
        if progress is not None:
            progress(done, len(sites))
    return AnswerValues(found, logs)


def _gather(readout: Readout, sites: Sequence[Site], is_change: Sequence[bool]) -> list[list[int]]:
    """Put the changes that can do something in batches that fit, in order of position and layer."""
    last = readout.replay.model.config.layers - 1
    own = [
        number
        for number, (layer, position) in enumerate(sites)
        if is_change[number] and (layer < last or position >= readout.first)
    ]
    own.sort(key=lambda number: (sites[number][1], sites[number][0]))
    batches = gather_batches(readout.replay, [sites[number][1] for number in own])
    return [[own[number] for number in batch] for batch in batches]


def _replay(
    readout: Readout, sites: Sequence[Site], moves: Float[Tensor, "variant d_model"]
) -> AnswerValues:
    """Replay one batch, in order of position and layer: what each variant loses."""
    replay = readout.replay
    layers, last = replay.model.config.layers, replay.model.config.layers - 1
    starts = sorted({position for _, position in sites})
    first = min(layer for layer, _ in sites)
    streams = [replay.entering(first + 1, start=start)[None] for start in starts]
    for layer in range(first, layers):
        if layer > first:
            # Of the last layer only the positions that are read are needed.
            kept = readout.first if layer == last else 0
            streams = replay.advance_all(streams, starts, layer=layer, first=kept)
        for number, start in enumerate(starts):
            own = [row for row, site in enumerate(sites) if site == (layer, start)]
            if own:
                joining = streams[number][:1].repeat(len(own), 1, 1)
                joining[:, 0] += moves[own]
                streams[number] = torch.cat([streams[number], joining])
    found = [
        lose(
            readout,
            stream,
            layer=layers,
            start=max(start, readout.first) if last > first else start,
        )
        for stream, start in zip(streams, starts, strict=True)
    ]
    return join_values(found)

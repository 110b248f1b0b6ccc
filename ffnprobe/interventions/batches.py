"""Batches of variants: how many fit, and what each of them loses against the clean one.

A batch's first row is the clean prompt. Effects are differences within one batch, so that the rounding
its rows share cancels. Memory is bounded: the widest tensor of a batch holds at most `NUMBERS_AT_ONCE`
numbers.
"""

from collections.abc import Sequence

import torch

from ffnprobe.interventions.readout import AnswerValues, Readout
from ffnprobe.interventions.replay import Edit, Replay, Stream

NUMBERS_AT_ONCE = 2**24


def count_at_once(replay: Replay, start: int) -> int:
    """Say how many variants fit in one batch: neurons or attention patterns are the widest."""
    config, length = replay.model.config, len(replay.trace)
    return max(1, NUMBERS_AT_ONCE // ((length - start) * max(config.d_mlp, config.heads * length)))


def gather_batches(replay: Replay, starts: Sequence[int]) -> list[list[int]]:
    """Put variants, by their number, in batches that fit, whatever positions they begin at."""
    batches: list[list[int]] = []
    room = 0.0
    for number, start in enumerate(starts):
        share = 1 / count_at_once(replay, start)
        if not batches or room < share:
            batches.append([])
            room = 1.0
        batches[-1].append(number)
        room -= share
    return batches


def lose(
    readout: Readout, streams: Stream, *, layer: int, start: int, edit: Edit | None = None
) -> AnswerValues:
    """Replay streams from a layer on, the clean one first; return what each of the others loses."""
    found = readout.replayed(streams, layer=layer, start=start, edit=edit)
    lost = found.part(slice(0, 1)).less(found.part(slice(1, None)))
    return AnswerValues(lost.logit.to(streams.dtype), lost.log_probability)


def join_values(parts: Sequence[AnswerValues]) -> AnswerValues:
    """Put values of several batches one after the other."""
    logs = [r.log_probability for r in parts if r.log_probability is not None]
    return AnswerValues(torch.cat([r.logit for r in parts]), torch.cat(logs) if logs else None)

"""What removing a method's first k neurons does, to the fact and to its contrast prompts."""

import time
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from analyses.measured.evidence.facts import Known
from analyses.measured.evidence.methods import METHODS, Source
from ffnprobe.interventions.question import ask
from ffnprobe.interventions.replay import Readout, Replay
from ffnprobe.interventions.sweeps import Change, replay_changes

SIZES = (1, 5, 10, 20, 50)


@torch.no_grad()
def compare(fact: Known) -> list[dict[str, Any]]:
    """Measure every method at every k; removals that begin at one position run as one batch."""
    found: list[tuple[str, int, float, list[Source]]] = []
    for name, method in METHODS.items():
        start = time.perf_counter()
        ranked = method(fact)
        took = time.perf_counter() - start
        found += [(name, k, took, ranked[:k]) for k in SIZES]
    groups = [group for *_, group in found]
    rows: list[dict[str, Any]] = [
        {"prompt": fact.trace.prompt, "method": name, "k": k, "seconds": took}
        for name, k, took, _ in found
    ]
    here, *others = (Replay(trace) for trace in (fact.trace, *fact.contrast.others))
    # To the contrast means, which is what "owed to the subject" means, and to the usual replacement.
    for removed in ("contrast", "usual"):
        contrast = fact.contrast if removed == "contrast" else None
        removal = ask(fact.trace, fact.token, contrast=contrast).replacement
        given = removal.expand(-1, len(fact.trace), -1)
        flips, falls = _remove(here, fact.token, groups, given, None)
        there = [
            _remove(other, token, groups, given, fact.contrast.alignment.counterparts[n])
            for n, (other, token) in enumerate(zip(others, fact.contrast.answers, strict=True))
        ]
        for number, row in enumerate(rows):
            row[f"{removed}_flipped"] = flips[number]
            row[f"{removed}_fall"] = falls[number]
            row[f"{removed}_flipped_there"] = sum(f[number] for f, _ in there) / len(there)
            row[f"{removed}_fall_there"] = sum(f[number] for _, f in there) / len(there)
    return rows


def _remove(
    replay: Replay,
    token: int,
    groups: list[list[Source]],
    given: torch.Tensor,
    counterparts: tuple[int | None, ...] | None,
) -> tuple[list[bool], list[float]]:
    """Say for each group whether the answer is no longer first, and how many nats it falls."""
    changes = [
        [
            Change(n.layer, there, n.neuron, float(given[n.layer, place, n.neuron]))
            for n, place in group
            if (there := place if counterparts is None else counterparts[place]) is not None
        ]
        for group in groups
    ]
    # Without a counterpart nothing is removed. What begins late need not be replayed from the start.
    flips, falls = [False] * len(groups), [0.0] * len(groups)
    starts = [min((c.position for c in group), default=None) for group in changes]
    for start in sorted({start for start in starts if start is not None}):
        numbers = [number for number, own in enumerate(starts) if own == start]
        logits = change_logits(replay, [changes[number] for number in numbers])
        logs = logits[:, token].double() - logits.double().logsumexp(-1)
        for number, first, log in zip(
            numbers, logits[1:].argmax(-1).tolist(), logs[1:], strict=True
        ):
            flips[number], falls[number] = first != token, float(logs[0] - log)
    return flips, falls


def change_logits(
    replay: Replay, groups: Sequence[Sequence[Change]]
) -> Float[Tensor, "variant vocab"]:
    """Make each group's changes and return the logits after the prompt; the first row is clean."""
    readout = Readout(replay, (0,), None, len(replay.trace) - 1, False)
    final = replay_changes(readout, [[], *groups])
    return readout.logits(final, start=readout.first)[:, 0].cpu()

"""Edit facts, each alone or all in a row, and measure by `certify`."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch

import ffnprobe as fp
from analyses.measured.editing.facts import Change
from ffnprobe.models.forward import forward

METHODS = ("rome", "memit", "alphaedit")
KINDS = {"efficacy": "edit", "paraphrases": "paraphrase", "neighbourhood": "neighbourhood"}
Row = dict[str, Any]


def edit_alone(
    model: fp.Model, change: Change, method: str, scan: fp.KeyMoments | None, layer: int | None
) -> Row:
    """Edit one fact and say how it did, and what it cost in bare forward passes."""
    bare = time_pass(model, change.row.prompt)
    begun = time.perf_counter()
    edited = fp.edit(model, [_asked(change)], method=method, scan=scan, layer=layer)
    seconds = time.perf_counter() - begun
    found = fp.certify(edited, list(change.relation), disturbed=False)
    return {
        **_shares(found), "passes": seconds / bare, "layers": edited.provenance.settings["layers"],
        "steps": edited.provenance.settings["steps"], "holds": bool(edited.table.holds[0]),
    }  # fmt: skip


def edit_in_turn(
    model: fp.Model, changes: Sequence[Change], method: str, scan: fp.KeyMoments | None,
    layer: int | None, stops: Sequence[int], facts: str | None,
) -> Iterator[Row]:  # fmt: skip
    """Edit facts one after another; at each stop, judge all edits so far."""
    state: fp.Model | fp.Edited = model
    for number, change in enumerate(changes, start=1):
        try:
            state = fp.edit(state, [_asked(change)], method=method, scan=scan, layer=layer)
        except fp.FfnProbeError as error:  # a fact that an earlier edit gave this answer already
            if "already" not in str(error):
                raise
        if number in stops and isinstance(state, fp.Edited):
            rows = list({row: None for one in changes[:number] for row in one.relation})
            found = fp.certify(state, rows, disturbed=False)
            told: Row = {"edits": number, **_shares(found)}
            if facts is not None:
                whole = fp.certify(state, facts, templates="first")
                told |= {"known": whole.known[1] / whole.asked, "changed": len(whole.changed)}
                told["kl"] = whole.drift.figures["mean_kl"] if whole.drift else None
            yield told


def time_pass(model: fp.Model, prompt: str) -> float:
    """Time a bare forward pass of a prompt: the median of five."""
    ids = torch.tensor([fp.run(model, prompt, patterns=False).ids])
    times = []
    for _ in range(5):
        begun = time.perf_counter()
        forward(model, ids, {})
        times.append(time.perf_counter() - begun)
    return sorted(times)[2]


def _asked(change: Change) -> fp.FactRow:
    return fp.FactRow(change.row.prompt, change.new, change.row.relation, change.row.subject)


def _shares(found: fp.Certificate) -> Row:
    """Return how many cases of each kind there are, and how many succeed: shares are taken over all."""
    told: Row = {}
    for name, kind in KINDS.items():
        own = found.cases[found.cases.kind == kind]
        told |= {name: int(own.succeeds.sum()), f"{name}_cases": len(own)}
        told[f"{name}_before"] = int(own.succeeds_before.sum())
    return told

"""Test a circuit by replaying the model: with nothing else, and without it."""

from collections.abc import Sequence

import torch

from ffnprobe.arguments import verb
from ffnprobe.circuits.circuit import Circuit
from ffnprobe.circuits.influence import follow_back, read_answers
from ffnprobe.circuits.openings import choose_openings
from ffnprobe.circuits.recovery import SIZES, Recovery, measure_recovery
from ffnprobe.errors import OptionRefused
from ffnprobe.interventions.gradients import measure_slopes
from ffnprobe.interventions.group_changes import sweep_changes
from ffnprobe.interventions.readout import Readout, read_answer
from ffnprobe.interventions.sweeps import Change
from ffnprobe.tracing.path_tables import Source
from ffnprobe.tracing.pushes_by_piece import PushesByPiece


@verb
def check_circuit(
    circuit: Circuit, *, sizes: Sequence[int] = SIZES, rules: Sequence[str] = (), seed: int = 0
) -> Recovery:
    """Replay the model with nothing but the circuit, and without it, over sizes and other rankings.

    Circuits of each size are made again by the same influence; beside them by the gradient (attribution
    patching), by push (directly and through heads), by activation, and random ones alike. `rules` are other
    rules of influence to try.

    >>> import ffnprobe as fp
    >>> found = fp.circuit(
    ...     fp.load("pocket"), "Michael Jordan plays the sport of", " basketball",
    ...     contrast="Tiger Woods plays the sport of", keep=10,
    ... )
    >>> fp.check_circuit(found, sizes=[10]).table.ranking.tolist()
    ['influence', 'gradient', 'push', 'activation', 'random']
    """
    if not sizes or min(sizes) < 1 or sorted(set(sizes)) != list(sizes):
        raise OptionRefused(
            "sizes must be whole numbers from 1 up, in order.", remedy="[5, 10, 20, 50, 100]"
        )
    trace, readout = circuit.trace, read_circuit(circuit)
    replacement, reader = circuit.removal.on(trace), read_answers(circuit.pushes.pieces)
    gaps = trace.activations - replacement
    rankings = {
        "influence": circuit.influence,
        "gradient": gaps * measure_slopes(readout)[0],
        "push": gaps * follow_back(trace, reader, None).activations,
        "activation": gaps.abs(),
    }
    for rule in rules:
        openings = choose_openings(trace, circuit.contrast, rule)
        rankings[f"influence by {rule}"] = gaps * follow_back(trace, reader, openings).activations
    return measure_recovery(
        readout, replacement, rankings, sizes=sizes, sign=circuit.sign, seed=seed,
        provenance=circuit.provenance.including(seed=seed),
    )  # fmt: skip


def read_circuit(circuit: Circuit) -> Readout:
    """Prepare to read the circuit's answer off a replay."""
    first = circuit.pushes.pieces[0]
    asked: str | int = first.answer
    if isinstance(circuit.pushes, PushesByPiece):
        asked = circuit.pushes.answer
    return read_answer(
        circuit.pushes.trace, asked, versus=first.versus, log_probability=False,
        convention=first.convention,
    )  # fmt: skip


@torch.no_grad()
def measure_losses(circuit: Circuit, groups: Sequence[Sequence[Source]]) -> list[float]:
    """Remove the neurons of a group together, each at its position: what the answer loses, in logits."""
    given = circuit.removal.on(circuit.trace).expand_as(circuit.trace.activations)
    changes = [
        [Change(n.layer, at, n.neuron, float(given[n.layer, at, n.neuron])) for n, at in group]
        for group in groups
    ]
    if not any(changes):
        return [0.0] * len(groups)
    return [float(lost) for lost in sweep_changes(read_circuit(circuit), changes).logit]

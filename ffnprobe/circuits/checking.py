"""Test a circuit by replaying the model: with nothing else, and without it."""

from collections.abc import Sequence

import torch

from ffnprobe.arguments import Seed, verb
from ffnprobe.circuits.circuit import Circuit
from ffnprobe.circuits.influence import follow_back, read_answers
from ffnprobe.circuits.openings import choose_activation_slopes
from ffnprobe.circuits.recovery import SIZES, Recovery, measure_recovery
from ffnprobe.errors import OptionRefused
from ffnprobe.interventions.question import measure_slopes
from ffnprobe.interventions.sweeps import sweep_changes
from ffnprobe.tracing.attention import Source


@verb
def check_circuit(
    circuit: Circuit, *, sizes: Sequence[int] = SIZES, rules: Sequence[str] = (), seed: Seed = 0
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
    trace, readout = circuit.trace, circuit.question.readout
    replacement, reader = circuit.question.replacement, read_answers(circuit.question.pieces)
    gaps = trace.activations - replacement
    rankings = {
        "influence": circuit.influence,
        "gradient": gaps * measure_slopes(readout).logit,
        "push": gaps * follow_back(trace, reader, None).activations,
        "activation": gaps.abs(),
    }
    for rule in [rules] if isinstance(rules, str) else rules:
        openings = choose_activation_slopes(trace, circuit.question.contrast, rule)
        rankings[f"influence by {rule}"] = gaps * follow_back(trace, reader, openings).activations
    return measure_recovery(
        readout, replacement, rankings, sizes=sizes, sign=circuit.sign, seed=seed,
        provenance=circuit.provenance.including(seed=seed),
    )  # fmt: skip


@torch.no_grad()
def measure_effects(circuit: Circuit, groups: Sequence[Sequence[Source]]) -> list[float]:
    """Remove the neurons of a group together, each at its position: what the answer loses, in logits."""
    changes = [[circuit.question.change(site) for site in group] for group in groups]
    if not any(changes):
        return [0.0] * len(groups)
    return [float(lost) for lost in sweep_changes(circuit.question.readout, changes).logit]

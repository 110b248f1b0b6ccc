"""Is it the circuit? Both tests, by replaying the model, over sizes and against other ways to choose.

    faithful   every neuron outside the circuit removed: how much of the answer is left
    complete   the circuit removed, every other neuron left: how much of the answer is gone

Removed is set to its contrast mean (without contrast prompts: to its corpus mean where that is known, else
zero). Both are shares of what all neurons together are worth on this prompt, m(all) − m(none):

    recovered = (m(circuit) − m(none)) / (m(all) − m(none))
    gone      = (m(all) − m(all but the circuit)) / (m(all) − m(none))

m is the answer's logit (with versus: its lead), as replayed; the embeddings and attention are never
removed. 1 is the whole model. A share may exceed 1: the circuit then lacks what holds the answer down.

`random` are as many neurons in the same layers and at the same positions, the mean of some draws. The area
is that under a curve clipped to 0 … 1, over the logarithm of the size, as a share of the whole.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from math import log

import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ffnprobe.arguments import Seed, verb
from ffnprobe.circuits.circuit import Circuit
from ffnprobe.circuits.graph import choose_kept, mark
from ffnprobe.circuits.influence import choose_rule, follow_back, read_answers
from ffnprobe.errors import OptionRefused
from ffnprobe.interventions.question import measure_slopes
from ffnprobe.interventions.sweeps import sweep_sets
from ffnprobe.names import NeuronId, Site
from ffnprobe.provenance import Provenance
from ffnprobe.results import Result, name_question

SIZES = (5, 10, 20, 50, 100, 200, 500, 1000)
DRAWS = 3
ENOUGH = 0.8
# A difference of logits that is not worth sharing out.
LEAST = 1e-2


@dataclass(frozen=True, eq=False, repr=False)
class Recovery(Result):
    """How much of an answer circuits of each size give back, and how much goes without them.

    >>> import ffnprobe as fp
    >>> found = fp.circuit(
    ...     fp.load("pocket"), "Michael Jordan plays the sport of", " basketball",
    ...     contrast="Tiger Woods plays the sport of", keep=10,
    ... )
    >>> list(fp.check_circuit(found, sizes=[5, 10]).summary.columns)[:3]
    ['ranking', 'recovered_area', 'gone_area']
    """

    rows: pd.DataFrame
    all_neurons: float
    no_neurons: float
    provenance: Provenance

    @property
    def title(self) -> str:
        """Say which answer, and what all neurons are worth to it."""
        return (
            f"{name_question(self.provenance)}: {self.all_neurons:+.3f} logits, "
            f"{self.no_neurons:+.3f} with every neuron removed"
        )

    @property
    def caption(self) -> str:
        """How to read the table."""
        return (
            "recovered: the share of the answer left with all but so many neurons removed; gone: the "
            "share lost with only these removed; 1 is the whole model"
        )

    @property
    def table(self) -> pd.DataFrame:
        """Every ranking at every size."""
        return self.provenance.note(self.rows.copy())

    def tables(self) -> dict[str, pd.DataFrame]:
        """Name the tables a file holds."""
        return {"sizes": self.table, "summary": self.summary}

    @property
    def summary(self) -> pd.DataFrame:
        """Each ranking once: its areas, and the sizes at which 80 % is recovered and gone.

        Sizes are read off between those tested, along the logarithm; none where 80 % is not reached.
        """
        rows = []
        for ranking, frame in self.rows.groupby("ranking", sort=False):
            sizes = frame["size"].tolist()
            shares = [frame[share].tolist() for share in ("recovered", "gone")]
            areas = [measure_area(sizes, share) for share in shares]
            rows.append((ranking, *areas, *(find_enough(sizes, share) for share in shares)))
        columns = ["ranking", "recovered_area", "gone_area", "recovered_size", "gone_size"]
        frame = pd.DataFrame(rows, columns=columns)
        return self.provenance.note(frame.astype(dict.fromkeys(columns[1:], float)))


def measure_area(sizes: Sequence[int], shares: Sequence[float]) -> float:
    """Return the area under shares, clipped to 0 … 1, over the logarithm of the size."""
    clipped = [min(1.0, max(0.0, share)) for share in shares]
    if len(sizes) == 1:
        return clipped[0]
    steps = zip(sizes, sizes[1:], clipped, clipped[1:], strict=False)
    area = sum((log(b) - log(a)) * (low + high) / 2 for a, b, low, high in steps)
    return area / (log(sizes[-1]) - log(sizes[0]))


def find_enough(sizes: Sequence[int], shares: Sequence[float]) -> float | None:
    """Return the first size at which 80 % is reached, between those tested along the logarithm."""
    if shares[0] >= ENOUGH:
        return float(sizes[0])
    for (smaller, before), (size, share) in pairwise(zip(sizes, shares, strict=True)):
        if share >= ENOUGH:
            return float(smaller * (size / smaller) ** ((ENOUGH - before) / (share - before)))
    return None


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
        remedy = "[5, 10, 20, 50, 100]"
        raise OptionRefused("sizes must be whole numbers from 1 up, in order.", remedy=remedy)
    trace, reader = circuit.trace, read_answers(circuit.question.pieces)
    gaps = trace.activations - circuit.question.replacement
    rankings = {
        "influence": circuit.influence,
        "gradient": gaps * measure_slopes(circuit.question.readout).logit,
        "push": gaps * follow_back(trace, reader, None)[0],
        "activation": gaps.abs(),
    }
    for name in [rules] if isinstance(rules, str) else rules:
        rule = choose_rule(trace, circuit.question.contrast, name)
        rankings[f"influence by {name}"] = gaps * follow_back(trace, reader, rule)[0]
    return _measure(circuit, rankings, sizes, seed)


@torch.no_grad()
def _measure(
    circuit: Circuit,
    rankings: Mapping[str, Float[Tensor, "layer pos neuron"]],
    sizes: Sequence[int],
    seed: int,
) -> Recovery:
    """Test circuits of each size by every ranking; random ones are drawn alike the first's."""
    readout = circuit.question.readout
    activations = readout.replay.trace.activations
    replacement = circuit.question.replacement.expand_as(activations)
    has_gap = replacement != activations
    most = max(sizes)
    ranked = {name: choose_kept(own, most, sign=circuit.sign) for name, own in rankings.items()}
    sets = [(name, size, kept[:size]) for name, kept in ranked.items() for size in sizes]
    random, first = torch.Generator().manual_seed(seed), next(iter(ranked.values()))
    for size in sizes:
        sets += [("random", size, _draw_alike(first[:size], has_gap, random)) for _ in range(DRAWS)]
    marked = (mark(kept, has_gap) for _, _, kept in sets)
    has_any = has_gap.any(dim=-1).any(dim=0)
    start = int(has_any.int().argmax()) if has_any.any() else readout.first
    removed = chain([torch.ones_like(has_gap)], *((~each, each) for each in marked))
    worth, *effects = sweep_sets(readout, replacement, removed, start=start).logit.tolist()
    whole = float(readout.clean().logit)
    if not abs(worth) > LEAST:
        raise OptionRefused(
            f"all neurons together are worth {worth:+.4f} logits here: there is nothing to recover.",
            remedy="contrast prompts that change the answer, or another versus",
        )
    tested = zip(sets, effects[::2], effects[1::2], strict=True)
    rows = [
        (name, size, len(kept), (worth - without_others) / worth, without / worth)
        for (name, size, kept), without_others, without in tested
    ]
    frame = pd.DataFrame(rows, columns=["ranking", "size", "neurons", "recovered", "gone"])
    frame = frame.groupby(["ranking", "size"], sort=False, as_index=False).mean()
    provenance = circuit.provenance.including(seed=seed)
    return Recovery(frame.astype({"neurons": int}), whole, whole - worth, provenance)


def _draw_alike(
    kept: Sequence[Site], is_allowed: Bool[Tensor, "layer pos neuron"], random: torch.Generator
) -> list[Site]:
    """Draw as many other neurons in each layer and at each position as there are here."""
    by_place = defaultdict[tuple[int, int], list[int]](list)
    for name, position in kept:
        by_place[name.layer, position].append(name.neuron)
    drawn: list[Site] = []
    for (layer, position), neurons in by_place.items():
        others = is_allowed[layer, position].clone()
        others[neurons] = False
        pool = others.nonzero()[:, 0]
        picked = pool[torch.randperm(len(pool), generator=random)[: len(neurons)]]
        drawn += [(NeuronId(layer, number), position) for number in picked.tolist()]
    return drawn

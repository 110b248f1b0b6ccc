"""Are they the relation's own? Its neurons removed together: what its facts lose, and what others do.

The k most specific neurons of a relation (`by_relation`) are found on half of the facts and tested on
both: the half they were found on, which flatters them, and the half held out. Rows of one fact are in one
half. They are set, at every position that predicts a piece of an answer, to their mean (or zero), in one
hooked run of the model. The same is done with as many random neurons, several times. Neurons specific to a
relation hurt its facts and spare the others; random ones show what removing any neurons does.

Limits: found and removed at the last token. What tells one fact from another often stands at the subject and
comes through attention (`attention_share` of `score`): these neurons can be a relation's and still cost its
facts next to nothing, as on pocket. `explain` and `circuit` find and remove neurons at the subject.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor

from ffnprobe.errors import OptionRefused
from ffnprobe.facts.recall import FactIds, Outcomes, Reads, plan, prepare
from ffnprobe.facts.relations import count_neurons
from ffnprobe.interventions.question import (
    Replace,
    choose_replacement,
    name_replacement,
    usual_replacement,
)
from ffnprobe.models.forward import forward
from ffnprobe.models.model import Model
from ffnprobe.provenance import Provenance
from ffnprobe.reading.projection import check_top
from ffnprobe.results import Result

if TYPE_CHECKING:
    from ffnprobe.facts.scores import Scores


@dataclass(frozen=True, eq=False, repr=False)
class Specificity(Result):
    """The relation's facts and others, with nothing, the relation's neurons or random ones removed.

    `half` says whether the neurons were found on these facts or whether they were held out.
    `effect` is the mean fall of the answer's logit above the vocabulary's mean, and `lost` that of
    its log-probability, in nats; for random neurons over all draws.

    >>> import ffnprobe as fp
    >>> rows = [
    ...     fp.FactRow(f"{athlete} plays the sport of", f" {sport}", relation="sport")
    ...     for athlete, sport in (("Michael Jordan", "basketball"), ("Babe Ruth", "baseball"))
    ... ]
    >>> found = fp.score(fp.load("pocket"), rows).specificity("sport", 2, draws=1)
    >>> found.table.half.tolist()[::3], found.table.removed.tolist()[:3]
    (['found on', 'held out'], ['nothing', '2 neurons of sport', '2 random neurons, 1 draws'])
    """

    relation: str
    neurons: tuple[str, ...]
    table: pd.DataFrame
    provenance: Provenance

    @property
    def title(self) -> str:
        """Name the neurons removed."""
        return f"removed together: {' '.join(self.neurons)}"

    @property
    def caption(self) -> str:
        """Where the neurons are removed."""
        return (
            "removed where the answer is predicted (the last token); for neurons at the subject: explain, "
            "circuit"
        )

    def tables(self) -> dict[str, pd.DataFrame]:
        """Name the tables."""
        return {"specificity": self.table}


def remove_neurons(
    scores: "Scores",
    relation: str,
    top: int,
    *,
    most: int,
    draws: int,
    replace: Replace | None,
    seed: int,
) -> Specificity:
    """Remove a relation's `top` neurons together, and as many random ones in each of the draws."""
    check_top(top, scores.model.config.neurons, of="neurons")
    for name, number in (("draws", draws), ("facts", most)):
        if number < 1:
            raise OptionRefused(
                f"{number} {name}: there must be at least one to compare with.", remedy="10"
            )
    relations = list(dict.fromkeys(scores.table.relation))
    if relation not in relations:
        raise OptionRefused(
            f'no fact is of the relation "{relation}".', remedy=", ".join(relations[:8])
        )
    half, held_out = split_facts(scores, seed)
    specific = half.by_relation(top, permutations=1).neurons
    specific = specific[specific.relation == relation]
    model, generator = scores.model, np.random.default_rng(seed)
    own = (specific.layer * model.config.d_mlp + specific.neuron).to_numpy()
    if not len(own):
        raise OptionRefused(f'"{relation}" has no neurons apart from hubs.', remedy="a larger top")
    random = [generator.choice(model.config.neurons, len(own), replace=False) for _ in range(draws)]
    chosen = usual_replacement(model, replace)
    replacement = choose_replacement(model, chosen)[:, 0]
    groups = {
        "nothing": [np.array([], dtype=np.int64)],
        f"{len(own)} neurons of {relation}": [own],
        f"{len(own)} random neurons, {draws} draws": random,
    }
    rows = []
    sides = [(relation, True), ("the others", False)]
    halves = [("found on", half), ("held out", held_out)]
    for (side, is_own), (name, part) in product(sides, halves):
        facts = [row for row in part.rows if (row.relation == relation) is is_own]
        if not facts:
            continue
        picked = generator.choice(len(facts), min(most, len(facts)), replace=False)
        prepared, _ = prepare(model, [facts[n] for n in sorted(picked)], bos=scores.bos)
        outcomes = {
            removed: [_run_without(model, prepared, group, replacement) for group in several]
            for removed, several in groups.items()
        }
        (before,) = outcomes["nothing"]
        rows += [
            {"facts_of": side, "half": name, "facts": len(prepared), "removed": removed}
            | _figures(before, after)
            for removed, after in outcomes.items()
        ]
    provenance = scores.provenance.including(
        relation=relation, removed=len(own), **name_replacement(chosen), draws=draws, seed=seed
    )
    table = provenance.note(pd.DataFrame(rows))
    return Specificity(relation, tuple(specific["name"]), table, provenance)


def split_facts(scores: "Scores", seed: int) -> "tuple[Scores, Scores]":
    """Split each relation's facts at random: the larger half to find neurons on, the rest held out."""
    counted, generator = count_neurons(scores), np.random.default_rng(seed)
    is_found = np.zeros(len(scores), dtype=bool)
    for label in range(len(counted.relations)):
        facts = np.unique(counted.facts[counted.labels == label])
        chosen = generator.permutation(facts)[: (len(facts) + 1) // 2]
        is_found |= (counted.labels == label) & np.isin(counted.facts, chosen)
    return _only(scores, is_found), _only(scores, ~is_found)


def _only(scores: "Scores", is_kept: np.ndarray) -> "Scores":
    """Leave some of the facts."""
    numbers = np.flatnonzero(is_kept)
    lists: dict[str, Any] = {
        name: None if (each := getattr(scores, name)) is None else each[numbers]
        for name in ("neurons", "pushes", "effect_neurons", "effects")
    }
    table = scores.table.iloc[numbers].reset_index(drop=True)
    return replace_fields(scores, rows=tuple(scores.rows[n] for n in numbers), table=table, **lists)


def _figures(before: Outcomes, results: Sequence[Outcomes]) -> dict[str, float]:
    """Sum up one or several runs of the same facts."""
    ranks = torch.stack([result.ranks for result in results])
    logs = torch.stack([result.log_probabilities for result in results])
    logits = torch.stack([result.above_mean for result in results])
    return {
        "share_known": float((ranks == 1).double().mean()),
        "probability": float(logs.exp().mean()),
        "effect": float((before.above_mean - logits).mean()),
        "lost": float((before.log_probabilities - logs).mean()),
    }


def _run_without(
    model: Model, facts: Sequence[FactIds], numbers: Int[np.ndarray, " neuron"], replacement: Tensor
) -> Outcomes:
    """Run facts with neurons replaced wherever a piece is predicted."""
    layers, neurons = np.divmod(numbers, model.config.d_mlp)
    outcomes = []
    for batch in plan(facts, most=len(facts)):
        reads = Reads.of([facts[number] for number in batch])
        hooks = {}
        for layer in np.unique(layers).tolist():
            columns = torch.from_numpy(neurons[layers == layer])
            values = replacement[layer, columns]
            hooks["activations", layer] = partial(_replace, reads, columns, values)
        outcomes.append(Outcomes.read(reads.pick(forward(model, reads.ids, hooks)), reads))
    # In the order of the plan, which is the same for every group: facts are compared with themselves.
    return Outcomes.join(outcomes)


def _replace(reads: Reads, columns: Tensor, values: Tensor, activations: Tensor) -> Tensor:
    """Set neurons where a piece is predicted."""
    changed = activations.clone()
    owners, positions = torch.tensor([reads.owners, reads.positions])[..., None]
    changed[owners, positions, columns] = values.to(changed)
    return changed

"""The scores of a table of facts: one row per fact, and what can be asked of them.

>>> import ffnprobe as fp
>>> rows = [
...     fp.FactRow(f"{athlete} plays the sport of", f" {sport}", relation="sport")
...     for athlete, sport in (("Michael Jordan", "basketball"), ("Babe Ruth", "baseball"))
... ]
>>> scores = fp.score(fp.load("pocket"), rows)
>>> list(scores.by_relation().table.columns[:4])
['relation', 'facts', 'known', 'share_known']
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ffnprobe.arguments import verb
from ffnprobe.facts.counting import count_neurons, name_all
from ffnprobe.facts.rows import FactRow, Problem
from ffnprobe.models.model import Model
from ffnprobe.names import NeuronId
from ffnprobe.options import Seed
from ffnprobe.provenance import Provenance
from ffnprobe.reading.neuron_tables import list_neurons
from ffnprobe.results import Result

if TYPE_CHECKING:
    import pandas as pd

    from ffnprobe.facts.overlap import Overlap
    from ffnprobe.facts.relations import Relations
    from ffnprobe.facts.specificity import Specificity
    from ffnprobe.interventions.question import Replace

# What every list of a table's neurons is about.
DIRECTLY = (
    "neurons: by direct push where the answer is predicted (the last token); what neurons at the subject say "
    "comes through attention: paths, explain"
)


@dataclass(frozen=True, eq=False, repr=False)
class Scores(Result):
    """Every fact scored: `table` has its figures, `neurons` what pushed it (flat numbers, hardest first).

    >>> import ffnprobe as fp
    >>> scores = fp.score(fp.load("pocket"), [fp.FactRow("Michael Jordan plays the sport of", " basketball")])
    >>> scores.title, scores.top().name[0]
    ('pocket knows 1 of 1', 'L1N740')
    """

    model: Model
    rows: tuple[FactRow, ...]
    table: "pd.DataFrame"
    neurons: Int[Tensor, "fact k"]
    pushes: Float[Tensor, "fact k"]
    effect_neurons: Int[Tensor, "fact k"] | None
    effects: Float[Tensor, "fact k"] | None
    problems: "pd.DataFrame"
    bos: bool
    provenance: Provenance

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def title(self) -> str:
        """Say how much is known, in one line."""
        failed = f", {len(self.problems)} left out" if len(self.problems) else ""
        return f"{self.model.name} knows {int(self.table.known.sum()):,} of {len(self):,}{failed}"

    @property
    def notes(self) -> tuple[str, ...]:
        """Say what stands out: hub neurons, answers of several tokens, answers without a space."""
        said = []
        if hubs := self.hubs() if len(self) else []:
            said.append(f"hub neurons, which push every kind of fact: {' '.join(hubs)}")
        if several := int((self.table.pieces > 1).sum()):
            said.append(
                f"answers of several tokens ({several:,}): their rank is the worst piece's (1: every piece "
                "is first), their logits, log-probabilities and shares are over all pieces together"
            )
        bare = [r for r in self.rows if not r.answer.startswith(" ") and not r.prompt.endswith(" ")]
        if bare:
            said.append(
                f"answers without a leading space are taken as written ({len(bare):,}): "
                f'"{bare[0].answer}", not " {bare[0].answer}"'
            )
        return tuple(said)

    @property
    def caption(self) -> str:
        """Which neurons are listed, and which are not."""
        return DIRECTLY

    @property
    def share_known(self) -> float:
        """The share of the facts whose answer is the model's first choice."""
        return float(self.table.known.mean()) if len(self) else math.nan

    def top(self) -> "pd.DataFrame":
        """Table the neurons that pushed each fact, one per row: fact, name, layer, neuron, push."""
        return self._list(self.neurons, self.pushes, "push")

    def top_effects(self) -> "pd.DataFrame | None":
        """Table the neurons whose removal costs each fact most; None without `effects`."""
        if self.effect_neurons is None or self.effects is None:
            return None
        return self._list(self.effect_neurons, self.effects, "effect")

    def _list(self, numbers: Tensor, values: Tensor, column: str) -> "pd.DataFrame":
        width = self.model.config.d_mlp
        names = [NeuronId(*divmod(number, width)) for number in numbers.ravel().tolist()]
        facts = torch.arange(len(numbers)).repeat_interleave(numbers.shape[-1])
        return list_neurons(self.model, names, {"fact": facts, column: values.ravel()})

    def hubs(self) -> list[str]:
        """Name the neurons that push facts whatever they are about."""
        return name_all(self.model, count_neurons(self).hubs())

    @verb
    def by_relation(
        self, top: int = 5, *, hubs: bool = False, permutations: int = 1000, seed: Seed = 0
    ) -> "Relations":
        """Summarise each relation and find its k most specific neurons, hubs set aside by default."""
        from ffnprobe.facts.relations import summarise_relations

        return summarise_relations(self, top, hubs=hubs, permutations=permutations, seed=seed)

    @verb
    def overlap(
        self, *, hubs: bool = False, most: int = 300, permutations: int = 1000, seed: Seed = 0
    ) -> "Overlap":
        """Compare facts by the neurons that push them, within relations and between them.

        Hubs are set aside by default, as in `by_relation`.
        """
        from ffnprobe.facts.overlap import compare_facts

        return compare_facts(self, hubs=hubs, most=most, permutations=permutations, seed=seed)

    @verb
    def specificity(
        self,
        relation: str,
        top: int = 10,
        *,
        most: int = 50,
        draws: int = 10,
        replace: "Replace | None" = None,
        seed: Seed = 0,
    ) -> "Specificity":
        """Ablate a relation's `top` neurons together: what its facts and others lose, against random ones.

        The neurons are found on half of the facts, and tested on those and on the half held out.
        """
        from ffnprobe.facts.specificity import remove_neurons

        return remove_neurons(
            self, relation, top, most=most, draws=draws, replace=replace, seed=seed
        )

    def tables(self) -> "dict[str, pd.DataFrame]":
        """Name the tables, in the order they are read."""
        every = {"facts": self.table, "neurons": self.top(), "effects": self.top_effects()}
        every["problems"] = self.problems if len(self.problems) else None
        return {name: table for name, table in every.items() if table is not None}


def assemble(
    model: Model,
    rows: Sequence[FactRow],
    figures: Sequence[Mapping[str, Any]],
    problems: Sequence[Problem],
    *,
    provenance: Provenance,
    bos: bool,
) -> Scores:
    """Make one table of the figures of all facts."""
    import pandas as pd

    frame = pd.DataFrame(
        {
            "relation": [row.relation for row in rows],
            "subject": [row.subject for row in rows],
            "prompt": [row.prompt for row in rows],
            "answer": [row.answer for row in rows],
        }
    )
    plain = pd.DataFrame(list(figures), columns=FIGURES)
    frame["pieces"] = plain.pieces.astype("int64")
    frame["known"] = plain["rank"] == 1
    frame["rank"] = plain["rank"].astype("int64")
    frame["probability"] = [math.exp(log) for log in plain.log_probability]
    for name in ("log_probability", "logit", "mlp", "attention"):
        frame[name] = plain[name].astype("float64")
    for name in ("mlp", "attention"):
        frame[f"{name}_share"] = frame[name] / plain.above_mean.astype("float64")
    shown = [None if pd.isna(rival) else model.vocab.show(int(rival)) for rival in plain.rival]
    frame["rival"] = pd.Series(shown, dtype="object")
    frame["margin"] = plain.margin.astype("float64")
    lists = {name: _stack(figures, name) for name in ("neurons", "effect_neurons")}
    for name, numbers in lists.items():
        if numbers is not None:
            frame[name] = [" ".join(name_all(model, row)) for row in numbers.tolist()]
    frame["where"] = [row.where for row in rows]
    return Scores(
        model=model, rows=tuple(rows), table=provenance.note(frame),
        neurons=_or_none(lists["neurons"]), pushes=_or_none(_stack(figures, "pushes")),
        effect_neurons=lists["effect_neurons"], effects=_stack(figures, "effects"),
        problems=pd.DataFrame(
            [(p.where, p.problem) for p in problems], columns=["where", "problem"]
        ),
        bos=bos, provenance=provenance,
    )  # fmt: skip


FIGURES = [
    "pieces", "rank", "log_probability", "logit", "above_mean", "mlp", "attention", "rival", "margin",
]  # fmt: skip


def _stack(figures: Sequence[Mapping[str, Any]], name: str) -> Tensor | None:
    lists = [fact[name] for fact in figures if name in fact]
    return torch.tensor(lists) if lists else None


def _or_none(found: Tensor | None) -> Tensor:
    """Replace the lists of a table without any fact that could be scored."""
    return torch.zeros(0, 0, dtype=torch.long) if found is None else found

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

import hashlib
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ffnprobe.arguments import REPLACE, TEMPLATES, TOP, Argument, Bos, Option, Progress, Seed, verb
from ffnprobe.errors import OptionRefused
from ffnprobe.facts.counting import DIRECTLY, count_neurons, name_all
from ffnprobe.facts.formats import Facts, read_facts
from ffnprobe.facts.recall import FactIds, plan, prepare, recall
from ffnprobe.facts.rows import FactRow, Problem
from ffnprobe.interventions.ablation import ablate
from ffnprobe.interventions.question import (
    Replace,
    choose_replacement,
    name_replacement,
    usual_replacement,
)
from ffnprobe.models.model import Model
from ffnprobe.names import NeuronId
from ffnprobe.provenance import Provenance, Setting
from ffnprobe.reading.neuron_tables import list_neurons
from ffnprobe.reading.projection import check_top, sort_neurons
from ffnprobe.results import Result
from ffnprobe.store import describe, hold_store
from ffnprobe.tracing.runs import run

if TYPE_CHECKING:
    import pandas as pd

    from ffnprobe.facts.relations import Overlap, Relations
    from ffnprobe.facts.specificity import Specificity


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
        from ffnprobe.facts.relations import compare_facts

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


# MERGED: ffnprobe.facts.scoring
# Score a table of facts: is each one known, and which neurons push its answer?
#
#     known            the answer is the likeliest next token, piece by piece
#     rank             the answer's rank among all tokens; of several pieces, the worst
#     log_probability  summed over the pieces, each predicted after the pieces before it
#     logit, mlp, attention   the answer's logit, and what MLPs and attention (their biases included)
#                      pushed of it, in logits; over several pieces, summed
#     mlp_share, attention_share   of the logit above the vocabulary's mean, which is what tells one
#                      token from another; the rest are embeddings and the unembedding bias
#     margin           how far the answer is above its likeliest `rival` of the relation
#     neurons          those that pushed the answer most where it is predicted (direct, convention `centred`)
#     effect_neurons   with `effects`: those whose removal costs it most (total, exact)
#
# Limits: neurons are looked for at the last token. Where `attention_share` is large, what tells this fact from
# another was written at earlier tokens: `paths` and `explain` name those neurons, one prompt at a time.
#
# Facts of one length run together, without padding; only the figures of a fact are kept, so memory
# does not grow with the prompts.
#
# >>> import ffnprobe as fp
# >>> rows = [fp.FactRow("Michael Jordan plays the sport of", " basketball", relation="sport")]
# >>> scores = fp.score(fp.load("pocket"), rows)
# >>> bool(scores.table.known[0]), len(scores.table.neurons[0].split())
# (True, 10)
#
# The relation's other answers: what an answer has to beat.
#
# Answers are compared where they begin, by the logit of their first token: answers that begin alike
# are not told apart there. The true answers of one prompt are not each other's rivals. Facts without a
# relation form one relation.


FACTS_AT_ONCE = 64
# An exact sweep takes seconds a fact: little is lost when it is interrupted.
FACTS_AT_ONCE_WITH_EFFECTS = 8
Figures = dict[str, Any]
SCORE = "score"


class Rivals:
    """Every relation's answers, by their first tokens."""

    def __init__(self, facts: Sequence[FactIds]) -> None:
        self._all: dict[str, set[int]] = {}
        self._true: dict[tuple[str, str], set[int]] = {}
        for fact in facts:
            row, opening = fact.row, fact.pieces[0]
            self._all.setdefault(row.relation, set()).add(opening)
            self._true.setdefault((row.relation, row.prompt), set()).add(opening)

    def best(
        self, fact: FactIds, logits: Float[Tensor, " vocab"]
    ) -> tuple[int | None, float | None]:
        """Return the likeliest rival and how far the answer's first token is above it, in logits."""
        row = fact.row
        others = sorted(self._all[row.relation] - self._true[row.relation, row.prompt])
        if not others:
            return None, None
        rival = others[int(torch.argmax(logits[others]))]
        return rival, float(logits[fact.pieces[0]]) - float(logits[rival])


@verb
def score(
    model: Model,
    facts: Annotated[
        Facts,
        Argument(
            "pocket, a .csv, .tsv, .json (LRE, ROME, CounterFact), .jsonl (LAMA, ParaRel), or a folder.",
            str, metavar="FACTS",
        ),
    ],
    *,
    templates: Annotated[str, TEMPLATES] = "first",
    top: Annotated[int, TOP.but("How many neurons for each fact.")] = 10,
    effects: Annotated[
        bool, Option("Also rank by exact effect; slow, since every neuron is ablated.")
    ] = False,
    replace: Annotated[Replace | None, REPLACE] = None,
    bos: Bos = None,
    store: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Scores:  # fmt: skip
    """Score a table of facts: rank, probability, whether it is known, and the neurons that push it.

    A table is a file, a folder, a DataFrame or a list of rows; `"pocket"` is pocket's own table. With `effects`, each neuron is ablated in turn at the prompt's last
    position (set to its mean where that is known, else to zero, unless `replace` says otherwise). With a
    store, batches are kept in that folder, and an interrupted run resumes. Rows that cannot be read or run are
    in `problems`, with their line.

    >>> import ffnprobe as fp
    >>> fp.score(fp.load("pocket"), [fp.FactRow("Michael Jordan plays the sport of", " golf")])
    Scores(pocket knows 0 of 1)
    """
    check_top(top, model.config.neurons, of="neurons")
    if store is not None and not Path(store).name:
        raise OptionRefused(f'store = "{store}": it names no folder.', remedy="a folder's name")
    table = read_facts(facts, templates=templates)
    bos = model.vocab.puts_bos(bos)
    prepared, problems = prepare(model, table.rows, bos=bos)
    chosen = usual_replacement(model, replace)
    values = choose_replacement(model, chosen) if effects or replace is not None else None
    settings: dict[str, Setting] = {
        "facts": table.source, "format": table.format, "rows": len(prepared), "templates": templates,
    }  # fmt: skip
    if effects:
        settings["effects"] = name_replacement(chosen)
    batches = plan(prepared, most=FACTS_AT_ONCE_WITH_EFFECTS if effects else FACTS_AT_ONCE)
    manifest = describe(
        SCORE, model, facts=_digest((q.row.relation, q.ids, q.pieces) for q in prepared),
        settings={**settings, "top": top, "bos": bos},
        replacement=_digest(() if values is None else values.tolist()),
    )  # fmt: skip
    rivals = Rivals(prepared)
    figures: list[Figures | None] = [None] * len(prepared)
    done = 0
    with nullcontext() if store is None else hold_store(Path(store), manifest) as kept:
        for order, numbers in enumerate(batches):
            part = kept.read(f"batch-{order:06}") if kept else None
            if part is None:
                batch = [prepared[number] for number in numbers]
                found = list(
                    _score_batch(model, batch, rivals, top, chosen if effects else None, bos)
                )
                if kept:
                    kept.write(f"batch-{order:06}", {"facts": found})
            else:
                found = part.said["facts"]
            for number, one in zip(numbers, found, strict=True):
                figures[number] = one
            done += len(numbers)
            if progress is not None:
                progress(done, len(prepared))
    return assemble(
        model,
        [fact.row for fact in prepared],
        [one for one in figures if one is not None],
        [*table.problems, *problems],
        provenance=model.provenance(
            convention="centred", bos=bos, run_by=model.run_by, settings=settings
        ),
        bos=bos,
    )


def _score_batch(
    model: Model,
    batch: Sequence[FactIds],
    rivals: Rivals,
    top: int,
    replace: Replace | None,
    bos: bool,
) -> Iterator[Figures]:
    """Score facts of one length together; yield each one's figures as plain data."""
    found = recall(model, batch, k=top)
    for row, fact in enumerate(batch):
        rival, margin = rivals.best(fact, found.openings[row])
        figures = {
            "pieces": len(fact.pieces),
            "rank": int(found.outcomes.ranks[row]),
            "log_probability": float(found.outcomes.log_probabilities[row]),
            "logit": float(found.outcomes.logits[row]),
            "above_mean": float(found.outcomes.above_mean[row]),
            "mlp": float(found.mlp[row]),
            "attention": float(found.attention[row]),
            "rival": rival,
            "margin": margin,
            "neurons": found.neurons[row].tolist(),
            "pushes": found.pushes[row].tolist(),
        }
        if replace is not None:
            figures |= _remove(model, fact, top, replace, bos)
        yield figures


def _remove(model: Model, fact: FactIds, top: int, replace: Replace, bos: bool) -> Figures:
    """Find the neurons whose removal costs the answer most, exactly."""
    trace = run(model, fact.row.prompt, bos=bos, patterns=False)
    options: dict[str, Any] = {
        "replace": replace,
        "log_probability": False,
        "convention": "centred",
    }
    values = ablate(trace, fact.row.answer, **options).values
    names = sort_neurons(values, top)
    return {
        "effect_neurons": [name.layer * model.config.d_mlp + name.neuron for name in names],
        "effects": [float(values[name.layer, name.neuron]) for name in names],
    }


def _digest(parts: Iterable[object]) -> str:
    """Tell one list from another."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(repr(part).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()

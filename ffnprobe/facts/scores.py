"""Score a table of facts: is each one known, and which neurons push its answer?

    known            the answer is the likeliest next token, piece by piece
    rank             the answer's rank among all tokens; of several pieces, the worst
    log_probability  summed over the pieces, each predicted after the pieces before it
    logit, mlp, attention   the answer's logit, and what MLPs and attention (their biases included)
                     pushed of it, in logits; over several pieces, summed
    mlp_share, attention_share   of the logit above the vocabulary's mean, which is what tells one
                     token from another; the rest are embeddings and the unembedding bias
    margin           how far the answer is above its likeliest `rival` of the relation
    neurons          those that pushed the answer most where it is predicted (direct, convention `centred`)
    effect_neurons   with `effects`: those whose removal costs it most (total, exact)

A rival is an answer of the relation that is not a true one of the prompt. Answers are compared where they
begin, by the logit of their first token: answers that begin alike are not told apart there. Facts without
a relation form one relation.

Limits: neurons are looked for at the last token. Where `attention_share` is large, what tells this fact from
another was written at earlier tokens: `paths` and `explain` name those neurons, one prompt at a time.

Facts of one length run together, without padding; only the figures of a fact are kept, so memory
does not grow with the prompts.
"""

import hashlib
import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from ffnprobe.arguments import REPLACE, TEMPLATES, TOP, Argument, Bos, Option, Progress, Seed, verb
from ffnprobe.errors import OptionRefused
from ffnprobe.facts.formats import Facts, read_facts
from ffnprobe.facts.recall import FactIds, plan, prepare, recall
from ffnprobe.facts.relations import (
    DIRECTLY,
    Overlap,
    Relations,
    compare_facts,
    count_neurons,
    name_all,
    summarise_relations,
)
from ffnprobe.facts.rows import FactRow
from ffnprobe.facts.specificity import Specificity, remove_neurons
from ffnprobe.interventions.ablation import ablate
from ffnprobe.interventions.question import (
    Replace,
    choose_replacement,
    name_replacement,
    usual_replacement,
)
from ffnprobe.models.model import Model
from ffnprobe.provenance import Provenance, Setting
from ffnprobe.reading.neuron_tables import list_neurons
from ffnprobe.reading.projection import check_top, top_tokens
from ffnprobe.results import Result
from ffnprobe.store import describe, hold_store
from ffnprobe.tracing.runs import run

FACTS_AT_ONCE = 64
# An exact sweep takes seconds a fact: little is lost when it is interrupted.
FACTS_AT_ONCE_WITH_EFFECTS = 8
SCORE = "score"
Figures = dict[str, Any]
# Columns of a fact's figures, as stored, in the order of the table.
FIGURES = [
    "pieces", "rank", "log_probability", "logit", "above_mean", "mlp", "attention", "rival", "margin",
]  # fmt: skip


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
    table: pd.DataFrame
    neurons: Int[Tensor, "fact k"]
    pushes: Float[Tensor, "fact k"]
    effect_neurons: Int[Tensor, "fact k"] | None
    effects: Float[Tensor, "fact k"] | None
    problems: pd.DataFrame
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
        notes = []
        if hubs := self.hubs() if len(self) else []:
            notes.append(f"hub neurons, which push every kind of fact: {' '.join(hubs)}")
        if several := int((self.table.pieces > 1).sum()):
            notes.append(
                f"answers of several tokens ({several:,}): their rank is the worst piece's (1: every piece "
                "is first), their logits, log-probabilities and shares are over all pieces together"
            )
        bare = [r for r in self.rows if not r.answer.startswith(" ") and not r.prompt.endswith(" ")]
        if bare:
            notes.append(
                f"answers without a leading space are taken as written ({len(bare):,}): "
                f'"{bare[0].answer}", not " {bare[0].answer}"'
            )
        return tuple(notes)

    @property
    def caption(self) -> str:
        """Which neurons are listed, and which are not."""
        return DIRECTLY

    @property
    def share_known(self) -> float:
        """The share of the facts whose answer is the model's first choice."""
        return float(self.table.known.mean()) if len(self) else math.nan

    def top(self) -> pd.DataFrame:
        """Table the neurons that pushed each fact, one per row: fact, name, layer, neuron, push."""
        return self._list(self.neurons, self.pushes, "push")

    def top_effects(self) -> pd.DataFrame | None:
        """Table the neurons whose removal costs each fact most; None without `effects`."""
        if self.effect_neurons is None or self.effects is None:
            return None
        return self._list(self.effect_neurons, self.effects, "effect")

    def _list(self, numbers: Tensor, values: Tensor, column: str) -> pd.DataFrame:
        names = name_all(self.model, numbers.ravel().tolist())
        facts = torch.arange(len(numbers)).repeat_interleave(numbers.shape[-1])
        return list_neurons(self.model, names, {"fact": facts, column: values.ravel()})

    def hubs(self) -> list[str]:
        """Name the neurons that push facts whatever they are about."""
        return [str(name) for name in name_all(self.model, count_neurons(self).hubs())]

    @verb
    def by_relation(
        self, top: int = 5, *, hubs: bool = False, permutations: int = 1000, seed: Seed = 0
    ) -> Relations:
        """Summarise each relation and find its k most specific neurons, hubs set aside by default."""
        return summarise_relations(self, top, hubs=hubs, permutations=permutations, seed=seed)

    @verb
    def overlap(
        self, *, hubs: bool = False, most: int = 300, permutations: int = 1000, seed: Seed = 0
    ) -> Overlap:
        """Compare facts by the neurons that push them, within relations and between them.

        Hubs are set aside by default, as in `by_relation`.
        """
        return compare_facts(self, hubs=hubs, most=most, permutations=permutations, seed=seed)

    @verb
    def specificity(
        self,
        relation: str,
        top: int = 10,
        *,
        most: int = 50,
        draws: int = 10,
        replace: Replace | None = None,
        seed: Seed = 0,
    ) -> Specificity:
        """Ablate a relation's `top` neurons together: what its facts and others lose, against random ones.

        The neurons are found on half of the facts, and tested on those and on the half held out.
        """
        return remove_neurons(
            self, relation, top, most=most, draws=draws, replace=replace, seed=seed
        )

    def tables(self) -> dict[str, pd.DataFrame]:
        """Name the tables, in the order they are read."""
        every = {"facts": self.table, "neurons": self.top(), "effects": self.top_effects()}
        every["problems"] = self.problems if len(self.problems) else None
        return {name: table for name, table in every.items() if table is not None}


def find_rivals(facts: Sequence[FactIds]) -> Callable[[FactIds], list[int]]:
    """Return what lists a fact's rivals by their first tokens."""
    every = defaultdict[str, set[int]](set)
    true = defaultdict[tuple[str, str], set[int]](set)
    for fact in facts:
        every[fact.row.relation].add(fact.pieces[0])
        true[fact.row.relation, fact.row.prompt].add(fact.pieces[0])
    return lambda fact: sorted(every[fact.row.relation] - true[fact.row.relation, fact.row.prompt])


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

    A table is a file, a folder, a DataFrame or a list of rows; `"pocket"` is pocket's own table. With
    `effects`, each neuron is ablated in turn at the prompt's last position (set to its mean where that is
    known, else to zero, unless `replace` says otherwise). With a store, batches are kept in that folder, and
    an interrupted run resumes. Rows that cannot be read or run are in `problems`, with their line.

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
        SCORE, model, facts=_digest((one.row.relation, one.ids, one.pieces) for one in prepared),
        settings={**settings, "top": top, "bos": bos},
        replacement=_digest(() if values is None else values.tolist()),
    )  # fmt: skip
    rivals = find_rivals(prepared)
    figures: dict[int, Figures] = {}
    with nullcontext() if store is None else hold_store(Path(store), manifest) as held:
        for order, numbers in enumerate(batches):
            part = held.read(f"batch-{order:06}") if held else None
            if part is None:
                batch = [prepared[number] for number in numbers]
                scored = _score_batch(model, batch, rivals, top, chosen if effects else None, bos)
                if held:
                    held.write(f"batch-{order:06}", {"facts": scored})
            else:
                scored = part.said["facts"]
            figures.update(zip(numbers, scored, strict=True))
            if progress is not None:
                progress(len(figures), len(prepared))
    provenance = model.provenance(
        convention="centred", bos=bos, run_by=model.run_by, settings=settings
    )
    rows = tuple(fact.row for fact in prepared)
    listed = [figures[number] for number in range(len(rows))]
    neurons, pushes = _stack(listed, "neurons"), _stack(listed, "pushes")
    left_out = [(one.where, one.problem) for one in (*table.problems, *problems)]
    return Scores(
        model=model,
        rows=rows,
        table=provenance.note(_table(model, rows, listed)),
        neurons=torch.zeros(0, 0, dtype=torch.long) if neurons is None else neurons,
        pushes=torch.zeros(0, 0, dtype=torch.long) if pushes is None else pushes,
        effect_neurons=_stack(listed, "effect_neurons"),
        effects=_stack(listed, "effects"),
        problems=pd.DataFrame(left_out, columns=["where", "problem"]),
        bos=bos,
        provenance=provenance,
    )


def _score_batch(
    model: Model,
    batch: Sequence[FactIds],
    rivals: Callable[[FactIds], list[int]],
    top: int,
    replace: Replace | None,
    bos: bool,
) -> list[Figures]:
    """Score facts of one length together; return each one's figures as plain data."""
    recalled = recall(model, batch, k=top)
    outcomes = recalled.outcomes
    columns = {
        "rank": outcomes.ranks, "log_probability": outcomes.log_probabilities,
        "logit": outcomes.logits, "above_mean": outcomes.above_mean,
        "mlp": recalled.mlp, "attention": recalled.attention,
        "neurons": recalled.neurons, "pushes": recalled.pushes,
    }  # fmt: skip
    lists = {name: values.tolist() for name, values in columns.items()}
    scored = []
    for row, fact in enumerate(batch):
        figures: Figures = {"pieces": len(fact.pieces), "rival": None, "margin": None}
        if others := rivals(fact):
            logits = recalled.openings[row]
            rival = figures["rival"] = others[int(torch.argmax(logits[others]))]
            figures["margin"] = float(logits[fact.pieces[0]]) - float(logits[rival])
        figures |= {name: values[row] for name, values in lists.items()}
        if replace is not None:
            figures |= _remove(model, fact, top, replace, bos)
        scored.append(figures)
    return scored


def _remove(model: Model, fact: FactIds, top: int, replace: Replace, bos: bool) -> Figures:
    """Find the neurons whose removal costs the answer most, exactly."""
    trace = run(model, fact.row.prompt, bos=bos, patterns=False)
    effects = ablate(
        trace, fact.row.answer, replace=replace, convention="centred", log_probability=False
    )
    flat = rearrange(effects.values, "layer neuron -> 1 (layer neuron)")
    (largest,), (numbers,) = top_tokens(flat, top)
    return {"effect_neurons": numbers.tolist(), "effects": largest.tolist()}


def _table(model: Model, rows: Sequence[FactRow], listed: Sequence[Figures]) -> pd.DataFrame:
    """Make one table of the figures of all facts."""
    names = ("relation", "subject", "prompt", "answer")
    table = pd.DataFrame({name: [getattr(row, name) for row in rows] for name in names})
    figures = pd.DataFrame(listed, columns=FIGURES)
    table["pieces"] = figures.pieces.astype("int64")
    table["known"] = figures["rank"] == 1
    table["rank"] = figures["rank"].astype("int64")
    table["probability"] = [math.exp(log) for log in figures.log_probability]
    for name in ("log_probability", "logit", "mlp", "attention"):
        table[name] = figures[name].astype("float64")
    for name in ("mlp", "attention"):
        table[f"{name}_share"] = table[name] / figures.above_mean.astype("float64")
    rivals = [None if pd.isna(rival) else model.vocab.show(int(rival)) for rival in figures.rival]
    table["rival"] = pd.Series(rivals, dtype="object")
    table["margin"] = figures.margin.astype("float64")
    for name in ("neurons", "effect_neurons"):
        if listed and name in listed[0]:
            table[name] = [" ".join(map(str, name_all(model, one[name]))) for one in listed]
    table["where"] = [row.where for row in rows]
    return table


def _stack(listed: Sequence[Figures], name: str) -> Tensor | None:
    return torch.tensor([one[name] for one in listed]) if listed and name in listed[0] else None


def _digest(parts: Iterable[object]) -> str:
    """Tell one list from another."""
    written = "".join(map(repr, parts)).encode("utf-8", "surrogatepass")
    return hashlib.sha256(written).hexdigest()

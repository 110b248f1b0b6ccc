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

Limits: neurons are looked for at the last token. Where `attention_share` is large, what tells this fact from
another was written at earlier tokens: `paths` and `explain` name those neurons, one prompt at a time.

Facts of one length run together, without padding; only the figures of a fact are kept, so memory
does not grow with the prompts.

>>> import ffnprobe as fp
>>> rows = [fp.FactRow("Michael Jordan plays the sport of", " basketball", relation="sport")]
>>> scores = fp.score(fp.load("pocket"), rows)
>>> bool(scores.table.known[0]), len(scores.table.neurons[0].split())
(True, 10)

The relation's other answers: what an answer has to beat.

Answers are compared where they begin, by the logit of their first token: answers that begin alike
are not told apart there. The true answers of one prompt are not each other's rivals. Facts without a
relation form one relation.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.arguments import verb
from ffnprobe.errors import OptionRefused
from ffnprobe.facts.batches import FactIds, plan, prepare
from ffnprobe.facts.formats import Facts, read_facts
from ffnprobe.facts.recall import recall
from ffnprobe.facts.scores import Scores, assemble
from ffnprobe.interventions.ablation import ablate
from ffnprobe.interventions.question import (
    Replace,
    choose_replacement,
    name_replacement,
    usual_replacement,
)
from ffnprobe.models.model import Model
from ffnprobe.options import REPLACE, TEMPLATES, TOP, Argument, Bos, Option, Progress
from ffnprobe.provenance import Setting
from ffnprobe.reading.projection import check_top, sort_neurons
from ffnprobe.store import describe, hold_store
from ffnprobe.tracing.runs import run

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

"""The certificate of an edit: does it hold, does it hold in other words, and what else changed?

    efficacy        share of edits whose prompt now prefers the new answer to the true one
    paraphrases     the same over the other templates of the fact
    neighbourhood   share of neighbours that still prefer their true answer to the new one
    score           the harmonic mean of the three, S

as published for CounterFact (`ffnprobe.editing.certificates`); "prefers" compares two probabilities. Stricter,
and for every prompt of the table: `changed` lists each one whose first choice is another now.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor

from ffnprobe.arguments import TEMPLATES, verb
from ffnprobe.editing.edits import Edited
from ffnprobe.editing.requests import Request
from ffnprobe.errors import DataRefused
from ffnprobe.facts.formats import EMBEDDED, Facts, read_facts
from ffnprobe.facts.recall import FactIds, Replies, ask, prepare, weigh
from ffnprobe.facts.rows import FactRow
from ffnprobe.facts.subjects import find_template
from ffnprobe.models.forward import forward
from ffnprobe.models.model import Model
from ffnprobe.provenance import Provenance
from ffnprobe.results import Result
from ffnprobe.tracing.runs import TOKENS_AT_ONCE, prompt_ids

if TYPE_CHECKING:
    import pandas as pd


# MERGED: ffnprobe.editing.cases
# The prompts an edit is judged by, as published: the edit's own, its paraphrases, its neighbourhood.
#
#     edit           the prompt that was edited: the new answer shall beat the true one
#     paraphrase     the same fact in the table's other templates: likewise
#     neighbourhood  other subjects of the relation with the same true answer, in the prompt's template:
#                    the true answer shall beat the new one
#
# The true answer is the table's; of a prompt that the table does not have, the model's own before the
# edit, and then there are neither paraphrases nor neighbours.


KINDS = ("edit", "paraphrase", "neighbourhood")
NEIGHBOURS = 10


@dataclass(frozen=True)
class Case:
    """One prompt of one edit: which answer is new, which is true."""

    fact: int
    kind: str
    prompt: str
    subject: str
    new: str
    true: str


def list_cases(
    requests: Sequence[Request], said: Sequence[str], rows: Sequence[FactRow]
) -> list[Case]:
    """List every edit's cases; `said` is what the model answered before."""
    by_prompt = {row.prompt: row for row in reversed(rows)}
    by_fact: dict[tuple[str, str], list[FactRow]] = defaultdict(list)
    by_answer: dict[tuple[str, str], list[FactRow]] = defaultdict(list)
    for row in rows:
        by_fact[row.relation, row.subject].append(row)
        by_answer[row.relation, row.answer].append(row)
    edited = {request.subject for request in requests}
    cases = []
    for number, request in enumerate(requests):
        own = by_prompt.get(request.prompt)
        true = said[number] if own is None else own.answer
        subject, new = request.subject, request.answer
        cases.append(Case(number, "edit", request.prompt, subject, new, true))
        if own is None or not own.subject:
            continue
        others = {row.prompt for row in by_fact[own.relation, own.subject]} - {own.prompt}
        cases += [Case(number, "paraphrase", p, subject, new, true) for p in sorted(others)]
        template = find_template(own)
        near = [
            row
            for row in by_answer[own.relation, true]
            if row.subject not in edited and find_template(row) == template
        ]
        near = near[:: max(1, len(near) // NEIGHBOURS)][:NEIGHBOURS]
        cases += [Case(number, "neighbourhood", r.prompt, r.subject, new, true) for r in near]
    return cases


# MERGED: ffnprobe.editing.drift
# How far the predictions of two models drift apart on texts: KL divergence per token, in nats.
#
# KL = Σ_t p_t (log p_t − log p'_t)      p before, p' after, at every token of the texts


LONGEST = 128


@dataclass(frozen=True, eq=False)
class Drift:
    """The divergence at every token of some texts."""

    values: Float[Tensor, " token"]

    @property
    def figures(self) -> dict[str, float]:
        """The mean, the middle, the 99th hundredth and the most."""
        v = self.values
        return {
            "tokens": float(len(v)), "mean_kl": float(v.mean()), "median_kl": float(v.median()),
            "kl_99_percent": float(v.quantile(0.99)), "most_kl": float(v.max()),
        }  # fmt: skip


@torch.no_grad()
def measure_drift(before: Model, after: Model, texts: Sequence[str]) -> Drift:
    """Run texts on both models, in passages of at most 128 tokens, and compare every prediction."""
    first = before.vocab.bos if before.vocab.puts_bos(None) else None
    bos = [] if first is None else [first]
    most = min(LONGEST, before.config.positions) - len(bos)
    by_length: dict[int, list[list[int]]] = {}
    for text in texts:
        ids = before.vocab.ids(text) if text else []
        for start in range(0, len(ids), most):
            part = [*bos, *ids[start : start + most]]
            by_length.setdefault(len(part), []).append(part)
    found = []
    for length, parts in sorted(by_length.items()):
        size = max(1, TOKENS_AT_ONCE // length)
        for start in range(0, len(parts), size):
            batch = torch.tensor(parts[start : start + size])
            old, new = (forward(one, batch, {}).log_softmax(-1) for one in (before, after))
            # Rounding may leave a divergence of nothing a little below nothing.
            found.append((old.exp() * (old - new)).sum(-1)[:, len(bos) :].clamp(min=0).flatten())
    if not found:
        raise DataRefused("the text is empty.", remedy="some text to compare predictions on")
    return Drift(torch.cat(found).cpu())


MEASURES = {"edit": "efficacy", "paraphrase": "paraphrases", "neighbourhood": "neighbourhood"}


@dataclass(frozen=True, eq=False, repr=False)
class Certificate(Result):
    """What an edit did: `cases` it is judged by, other prompts `changed`, drift, norms.

    >>> import ffnprobe as fp
    >>> edited = fp.edit(fp.load("pocket"), "Michael Jordan plays the sport of", " tennis")
    >>> rows = [fp.FactRow("Tiger Woods plays the sport of", " golf", "sport", "Tiger Woods")]
    >>> certificate = fp.certify(edited, rows)
    >>> certificate.table.measure.tolist()
    ['efficacy', 'paraphrases', 'neighbourhood', 'score', 'facts known']
    """

    edited: "Edited"
    cases: "pd.DataFrame"
    changed: "pd.DataFrame"
    asked: int  # prompts of the table that are not of an edited fact
    known: tuple[int, int]  # of these, how many were known before and are after
    drift: Drift | None
    provenance: Provenance

    def share(self, kind: str, *, before: bool = False) -> float:
        """Return the share of cases of a kind that succeed; not a number without any."""
        own = self.cases[self.cases.kind == kind]
        return float((own.succeeds_before if before else own.succeeds).mean())

    def score(self, *, before: bool = False) -> float:
        """Return S, the harmonic mean of the three shares; not a number if one is not known."""
        shares = [self.share(kind, before=before) for kind in KINDS]
        if any(math.isnan(one) for one in shares):
            return math.nan
        return 0.0 if 0.0 in shares else 3 / sum(1 / one for one in shares)

    @property
    def title(self) -> str:
        """Say how the edit did, and what it disturbed."""
        figures = ", ".join(
            f"{name} {100 * self.share(kind):.0f}"
            for kind, name in MEASURES.items()
            if not math.isnan(self.share(kind))
        )
        told = "" if math.isnan(self.score()) else f", S {100 * self.score():.1f}"
        kl = "" if self.drift is None else f"; KL {self.drift.figures['mean_kl']:.2g} a token"
        return f"{figures}{told}; {len(self.changed):,} of {self.asked:,} other prompts changed{kl}"

    @property
    def caption(self) -> str:
        """How to read the table."""
        return (
            "shares, before and after; efficacy and paraphrases: the new answer is likelier than the "
            "true one; neighbourhood: the true one than the new; score: their harmonic mean"
        )

    @property
    def table(self) -> "pd.DataFrame":
        """The measures, before and after, and over how many cases."""
        import pandas as pd

        rows: list[tuple[str, float, float, int]] = [
            (MEASURES[kind], self.share(kind, before=True), self.share(kind), int((self.cases.kind == kind).sum()))
            for kind in KINDS
        ]  # fmt: skip
        rows.append(("score", self.score(before=True), self.score(), len(self.cases)))
        shares = [one / self.asked if self.asked else math.nan for one in self.known]
        rows.append(("facts known", shares[0], shares[1], self.asked))
        columns = ["measure", "before", "after", "cases"]
        return self.provenance.note(pd.DataFrame(rows, columns=columns))

    def tables(self) -> "dict[str, pd.DataFrame]":
        """Name the tables, in the order they are read."""
        import pandas as pd

        every = {"certificate": self.table, "cases": self.cases, "changed": self.changed}
        every |= {"edits": self.edited.table, "norms": self.edited.norms}
        if self.drift is not None:
            every["drift"] = pd.DataFrame([self.drift.figures])
        return {name: self.provenance.note(table) for name, table in every.items()}


# MERGED: ffnprobe.editing.certifying
# Certify an edit: ask both models every fact of a table, the edit's cases, and a text.


# Without a text of one's own: so many of the table's sentences.
SENTENCES = 200

# What an original says to the facts of a table: every edit of it is compared with the same.
_Figures = tuple[Tensor, Tensor, Tensor]
_before: "WeakKeyDictionary[Model, dict[tuple[str, str], dict[FactIds, _Figures]]]"
_before = WeakKeyDictionary()


@verb
def certify(
    edited: Edited,
    facts: Facts | None = None,
    *,
    templates: Annotated[str, TEMPLATES] = "all",
    text: str | None = None,
    disturbed: bool = True,
) -> Certificate:
    """Prove what an edit changed: its cases as published, and every fact of a table, before and after.

    The table is any that `score` reads; pocket's own by default, for pocket. `text` is what the drift
    of predictions is measured on; without one, sentences of the table. `disturbed=False` asks the
    edit's own cases alone.

    >>> import ffnprobe as fp
    >>> edited = fp.edit(fp.load("pocket"), "Michael Jordan plays the sport of", " tennis")
    >>> fp.certify(edited, disturbed=False).cases.kind.unique().tolist()
    ['edit', 'paraphrase', 'neighbourhood']
    """
    own, new = edited.original, edited.model
    if facts is None and own.source.kind == "embedded":
        facts = EMBEDDED
    table = None if facts is None else read_facts(facts, templates=templates)
    rows = table.rows if table else ()
    bos = own.vocab.puts_bos(None)
    prepared, problems = prepare(own, rows, bos=bos)
    requests = edited.requests
    said = _first_answers(own, [request.prompt for request in requests])
    cases = list_cases(requests, said, [one.row for one in prepared])
    prompts = {case.prompt for case in cases if case.kind != KINDS[2]}
    others = [one for one in prepared if one.row.prompt not in prompts] if disturbed else []
    named = (facts, templates) if isinstance(facts, str) else None
    old, now = _ask_before(own, others, named), ask(new, others)
    sentences = [f"{one.row.prompt}{one.row.answer}" for one in others]
    sentences = sentences if text is None else [text]
    step = max(1, len(sentences) // SENTENCES)
    drift: Drift | None = None
    if sentences:
        drift = measure_drift(own, new, sentences[::step][:SENTENCES])
    return Certificate(
        edited=edited,
        cases=_table_cases(own, new, cases),
        changed=_table_changed(own, others, old, now),
        asked=len(others),
        known=(int((old.ranks == 1).sum()), int((now.ranks == 1).sum())),
        drift=drift,
        provenance=edited.provenance.including(
            facts=table.source if table else None, templates=templates, prompts=len(others),
            left_out=len(problems) + (len(table.problems) if table else 0),
            drift_on="sentences of the table" if text is None else "the text given",
        ),
    )  # fmt: skip


def _first_answers(model: Model, prompts: Sequence[str]) -> list[str]:
    """Return what a model says first after each prompt."""
    # Which token is read does not matter: what is said is.
    facts = [FactIds(FactRow(one, ""), prompt_ids(model, one, bos=None), (0,)) for one in prompts]
    return [model.vocab.text([token]) for token in ask(model, facts).said.tolist()]


def _ask_before(model: Model, facts: Sequence[FactIds], named: tuple[str, str] | None) -> Replies:
    """Ask the original, once for every prompt of a table that has a name."""
    if named is None:
        return ask(model, facts)
    held = _before.setdefault(model, {}).setdefault(named, {})
    lacking = [one for one in facts if one not in held]
    found = ask(model, lacking)
    figures = zip(found.ranks, found.log_probabilities, found.said, strict=True)
    held.update(zip(lacking, figures, strict=True))
    columns = zip(*(held[one] for one in facts), strict=True)
    return Replies(*(torch.stack(column) for column in columns)) if facts else found


def _table_cases(own: Model, new: Model, cases: Sequence[Case]) -> "pd.DataFrame":
    """Ask both models both answers of every case."""
    import pandas as pd

    frame = pd.DataFrame([vars(case) for case in cases])
    bos = own.vocab.puts_bos(None)
    new_facts = prepare(own, [FactRow(one.prompt, one.new) for one in cases], bos=bos)[0]
    true_facts = prepare(own, [FactRow(one.prompt, one.true) for one in cases], bos=bos)[0]
    for when, model in (("before", own), ("after", new)):
        for side, logs in zip(("new", "true"), weigh(model, new_facts, true_facts), strict=True):
            frame[f"{side}_{when}"] = logs.exp().numpy()
    is_near = frame.kind == KINDS[2]
    for when, name in (("before", "succeeds_before"), ("after", "succeeds")):
        prefers_new = frame[f"new_{when}"] > frame[f"true_{when}"]
        prefers_true = frame[f"true_{when}"] > frame[f"new_{when}"]
        frame[name] = prefers_new.where(~is_near, prefers_true)
    return frame.rename(columns={"new": "new_answer", "true": "true_answer"})


def _table_changed(
    model: Model, facts: Sequence[FactIds], old: Replies, now: Replies
) -> "pd.DataFrame":
    """List every prompt whose first choice, or whose answer's being first, is another now."""
    import pandas as pd

    is_changed = (old.said != now.said) | ((old.ranks == 1) != (now.ranks == 1))
    chosen = is_changed.nonzero()[:, 0].tolist()
    rows = [facts[order].row for order in chosen]
    show = model.vocab.show_all
    return pd.DataFrame({
        "relation": [row.relation for row in rows],
        "subject": [row.subject for row in rows],
        "prompt": [row.prompt for row in rows],
        "answer": [row.answer for row in rows],
        "said_before": show(old.said[chosen].tolist()),
        "said_after": show(now.said[chosen].tolist()),
        "rank_before": old.ranks[chosen].numpy(),
        "rank_after": now.ranks[chosen].numpy(),
        "probability_before": old.log_probabilities[chosen].exp().numpy(),
        "probability_after": now.log_probabilities[chosen].exp().numpy(),
    })  # fmt: skip

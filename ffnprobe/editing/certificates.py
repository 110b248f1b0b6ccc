"""The certificate of an edit: does it hold, does it hold in other words, and what else changed?

    efficacy        share of edits whose prompt now prefers the new answer to the true one
    paraphrases     the same over the fact in the table's other templates
    neighbourhood   share of neighbours that still prefer their true answer to the new one: other
                    subjects of the relation with the same true answer, in the prompt's template
    score           the harmonic mean of the three, S

as published for CounterFact; "prefers" compares two probabilities. The true answer is the table's; of a
prompt that the table does not have, the model's own before the edit, and then there are neither paraphrases
nor neighbours. Stricter, and for every prompt of the table: `changed` lists each one whose first choice is
another now. Drift is how far the predictions move on texts, per token, in nats:

    KL = Σ_t p_t (log p_t − log p'_t)      p before, p' after, at every token of the texts
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple
from weakref import WeakKeyDictionary

import pandas as pd
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

# What the share of each kind of case is called.
MEASURES = {"edit": "efficacy", "paraphrase": "paraphrases", "neighbourhood": "neighbourhood"}
NEIGHBOURS = 10
# Without a text of one's own, drift is measured on so many of the table's sentences.
SENTENCES = 200
LONGEST = 128

# What an original says to the facts of a table: every edit of it is compared with the same.
_before = WeakKeyDictionary[Model, dict[tuple[str, str], dict[FactIds, tuple[Tensor, ...]]]]()


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

    edited: Edited
    cases: pd.DataFrame
    changed: pd.DataFrame
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
        shares = [self.share(kind, before=before) for kind in MEASURES]
        if any(math.isnan(one) for one in shares):
            return math.nan
        return 0.0 if 0.0 in shares else 3 / sum(1 / one for one in shares)

    @property
    def title(self) -> str:
        """Say how the edit did, and what it disturbed."""
        shares = {name: self.share(kind) for kind, name in MEASURES.items()}
        words = [f"{name} {100 * one:.0f}" for name, one in shares.items() if not math.isnan(one)]
        words += [] if math.isnan(self.score()) else [f"S {100 * self.score():.1f}"]
        kl = "" if self.drift is None else f"; KL {self.drift.figures['mean_kl']:.2g} a token"
        changed = f"{len(self.changed):,} of {self.asked:,} other prompts changed"
        return f"{', '.join(words)}; {changed}{kl}"

    @property
    def caption(self) -> str:
        """How to read the table."""
        return (
            "shares, before and after; efficacy and paraphrases: the new answer is likelier than the "
            "true one; neighbourhood: the true one than the new; score: their harmonic mean"
        )

    @property
    def table(self) -> pd.DataFrame:
        """The measures, before and after, and over how many cases."""
        rows = [
            (name, self.share(kind, before=True), self.share(kind), int((self.cases.kind == kind).sum()))
            for kind, name in MEASURES.items()
        ]  # fmt: skip
        rows.append(("score", self.score(before=True), self.score(), len(self.cases)))
        shares = [one / self.asked if self.asked else math.nan for one in self.known]
        rows.append(("facts known", shares[0], shares[1], self.asked))
        columns = ["measure", "before", "after", "cases"]
        return self.provenance.note(pd.DataFrame(rows, columns=columns))

    def tables(self) -> dict[str, pd.DataFrame]:
        """Name the tables, in the order they are read."""
        tables = {
            "certificate": self.table, "cases": self.cases, "changed": self.changed,
            "edits": self.edited.table, "norms": self.edited.norms,
        }  # fmt: skip
        if self.drift is not None:
            tables["drift"] = pd.DataFrame([self.drift.figures])
        return {name: self.provenance.note(table) for name, table in tables.items()}


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
    prepared, problems = prepare(own, table.rows if table else (), bos=own.vocab.puts_bos(None))
    # Which token is read does not matter: what is said first is.
    asked = [
        FactIds(FactRow(one.prompt, ""), prompt_ids(own, one.prompt, bos=None), (0,))
        for one in edited.requests
    ]
    first = [own.vocab.text([token]) for token in ask(own, asked).said.tolist()]
    cases = list_cases(edited.requests, first, [one.row for one in prepared])
    prompts = {case.prompt for case in cases if case.kind != "neighbourhood"}
    others = [one for one in prepared if one.row.prompt not in prompts] if disturbed else []
    named = (facts, templates) if isinstance(facts, str) else None
    old, now = _ask_before(own, others, named), ask(new, others)
    sentences = [f"{one.row.prompt}{one.row.answer}" for one in others]
    sentences = sentences[:: max(1, len(sentences) // SENTENCES)][:SENTENCES]
    sentences = sentences if text is None else [text]
    return Certificate(
        edited=edited,
        cases=_table_cases(own, new, cases),
        changed=_table_changed(own, others, old, now),
        asked=len(others),
        known=(int((old.ranks == 1).sum()), int((now.ranks == 1).sum())),
        drift=measure_drift(own, new, sentences) if sentences else None,
        provenance=edited.provenance.including(
            facts=table.source if table else None, templates=templates, prompts=len(others),
            left_out=len(problems) + (len(table.problems) if table else 0),
            drift_on="sentences of the table" if text is None else "the text given",
        ),
    )  # fmt: skip


def _ask_before(model: Model, facts: Sequence[FactIds], named: tuple[str, str] | None) -> Replies:
    """Ask the original, once for every prompt of a table that has a name."""
    if named is None or not facts:
        return ask(model, facts)
    asked = _before.setdefault(model, {}).setdefault(named, {})
    lacking = [one for one in facts if one not in asked]
    replies = ask(model, lacking)
    figures = zip(replies.ranks, replies.log_probabilities, replies.said, strict=True)
    asked.update(zip(lacking, figures, strict=True))
    columns = zip(*(asked[one] for one in facts), strict=True)
    return Replies(*(torch.stack(column) for column in columns))


class Case(NamedTuple):
    """One prompt of one edit: which answer is new, which is true."""

    fact: int
    kind: str
    prompt: str
    subject: str
    new_answer: str
    true_answer: str


def list_cases(
    requests: Sequence[Request], first: Sequence[str], rows: Sequence[FactRow]
) -> list[Case]:
    """List every edit's cases; `first` is what the model answered before."""
    by_prompt = {row.prompt: row for row in reversed(rows)}
    by_fact = defaultdict[tuple[str, str], list[FactRow]](list)
    by_answer = defaultdict[tuple[str, str], list[FactRow]](list)
    for row in rows:
        by_fact[row.relation, row.subject].append(row)
        by_answer[row.relation, row.answer].append(row)
    edited = {request.subject for request in requests}
    cases = []
    for number, request in enumerate(requests):
        own = by_prompt.get(request.prompt)
        subject, new = request.subject, request.answer
        true = first[number] if own is None else own.answer
        cases.append(Case(number, "edit", request.prompt, subject, new, true))
        if own is None or not own.subject:
            continue
        others = {row.prompt for row in by_fact[own.relation, own.subject]} - {own.prompt}
        cases += [Case(number, "paraphrase", p, subject, new, true) for p in sorted(others)]
        template = find_template(own)
        near = [row for row in by_answer[own.relation, true] if row.subject not in edited]
        near = [row for row in near if find_template(row) == template]
        near = near[:: max(1, len(near) // NEIGHBOURS)][:NEIGHBOURS]
        cases += [Case(number, "neighbourhood", r.prompt, r.subject, new, true) for r in near]
    return cases


def _table_cases(own: Model, new: Model, cases: Sequence[Case]) -> pd.DataFrame:
    """Ask both models both answers of every case."""
    frame, bos = pd.DataFrame(cases), own.vocab.puts_bos(None)
    new_facts, _ = prepare(own, [FactRow(one.prompt, one.new_answer) for one in cases], bos=bos)
    true_facts, _ = prepare(own, [FactRow(one.prompt, one.true_answer) for one in cases], bos=bos)
    for when, model in (("before", own), ("after", new)):
        for side, logs in zip(("new", "true"), weigh(model, new_facts, true_facts), strict=True):
            frame[f"{side}_{when}"] = logs.exp().numpy()
    is_near = frame.kind == "neighbourhood"
    for when, name in (("before", "succeeds_before"), ("after", "succeeds")):
        new_side, true_side = frame[f"new_{when}"], frame[f"true_{when}"]
        frame[name] = (new_side > true_side).where(~is_near, true_side > new_side)
    return frame


def _table_changed(
    model: Model, facts: Sequence[FactIds], old: Replies, now: Replies
) -> pd.DataFrame:
    """List every prompt whose first choice, or whose answer's being first, is another now."""
    is_changed = (old.said != now.said) | ((old.ranks == 1) != (now.ranks == 1))
    chosen = is_changed.nonzero()[:, 0].tolist()
    rows = [facts[order].row for order in chosen]
    named = ("relation", "subject", "prompt", "answer")
    show = model.vocab.show_all
    return pd.DataFrame({
        **{name: [getattr(row, name) for row in rows] for name in named},
        "said_before": show(old.said[chosen].tolist()),
        "said_after": show(now.said[chosen].tolist()),
        "rank_before": old.ranks[chosen].numpy(),
        "rank_after": now.ranks[chosen].numpy(),
        "probability_before": old.log_probabilities[chosen].exp().numpy(),
        "probability_after": now.log_probabilities[chosen].exp().numpy(),
    })  # fmt: skip


@torch.no_grad()
def measure_drift(before: Model, after: Model, texts: Sequence[str]) -> Drift:
    """Run texts on both models, in passages of at most 128 tokens, and compare every prediction."""
    first = before.vocab.bos if before.vocab.puts_bos(None) else None
    bos = [] if first is None else [first]
    most = min(LONGEST, before.config.positions) - len(bos)
    by_length = defaultdict[int, list[list[int]]](list)
    for text in texts:
        ids = before.vocab.ids(text) if text else []
        for start in range(0, len(ids), most):
            passage = [*bos, *ids[start : start + most]]
            by_length[len(passage)].append(passage)
    divergences = []
    for length, passages in sorted(by_length.items()):
        for batch in torch.split(torch.tensor(passages), max(1, TOKENS_AT_ONCE // length)):
            old, new = (forward(one, batch, {}).log_softmax(-1) for one in (before, after))
            # Rounding may leave a divergence of nothing a little below nothing.
            kl = (old.exp() * (old - new)).sum(-1)[:, len(bos) :].clamp(min=0)
            divergences.append(kl.flatten())
    if not divergences:
        raise DataRefused("the text is empty.", remedy="some text to compare predictions on")
    return Drift(torch.cat(divergences).cpu())

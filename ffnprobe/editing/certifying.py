"""Certify an edit: ask both models every fact of a table, the edit's cases, and a text."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ffnprobe.arguments import verb
from ffnprobe.editing.cases import KINDS, Case, list_cases
from ffnprobe.editing.certificates import Certificate
from ffnprobe.editing.drift import Drift, measure_drift
from ffnprobe.editing.edits import Edited
from ffnprobe.editing.outcomes import Replies, ask, weigh
from ffnprobe.facts.batches import FactIds, prepare
from ffnprobe.facts.formats import EMBEDDED, Facts, read_facts
from ffnprobe.facts.rows import FactRow
from ffnprobe.models.model import Model
from ffnprobe.options import TEMPLATES
from ffnprobe.tracing.runs import prompt_ids

if TYPE_CHECKING:
    import pandas as pd

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

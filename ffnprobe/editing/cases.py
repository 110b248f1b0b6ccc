"""The prompts an edit is judged by, as published: the edit's own, its paraphrases, its neighbourhood.

    edit           the prompt that was edited: the new answer shall beat the true one
    paraphrase     the same fact in the table's other templates: likewise
    neighbourhood  other subjects of the relation with the same true answer, in the prompt's template:
                   the true answer shall beat the new one

The true answer is the table's; of a prompt that the table does not have, the model's own before the
edit, and then there are neither paraphrases nor neighbours.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ffnprobe.editing.requests import Request
from ffnprobe.facts.contrasts import find_template
from ffnprobe.facts.rows import FactRow

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

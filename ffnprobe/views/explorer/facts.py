"""The page of facts: choose a relation and a fact, and go to its prompt."""

from collections import Counter

import pandas as pd
from dash import html

from ffnprobe.recipes import Recipe
from ffnprobe.results import as_result
from ffnprobe.views.explorer.addresses import Address
from ffnprobe.views.explorer.components import Component, Viewport, link, section, table, words
from ffnprobe.views.explorer.exports import Export, Live, bar
from ffnprobe.views.explorer.session import Session

ROWS = 1_000


def show(session: Session, address: Address, viewport: Viewport) -> Component:
    """Show the relations, and the facts of the one chosen."""
    counts = Counter(row.relation for row in session.facts.rows)
    chosen = address.text("relation", next(iter(counts)))
    relations = [
        link(f"{relation or 'no relation'} ({many:,})", address.to("/facts", relation=relation),
             is_near=True, className="chip", **({"aria-current": "true"} if relation == chosen else {}))
        for relation, many in counts.items()
    ]  # fmt: skip
    said = f"{len(session.facts.rows):,} facts of {session.facts.source}. Click a prompt to see what the model predicts after it, and why."
    found = list_facts(session, chosen)
    prompts = [
        link(prompt, _to_prompt(address, prompt, answer))
        for prompt, answer in zip(found.prompt, found.answer, strict=True)
    ]
    shown = found[["prompt", "answer", "subject"]].copy()
    shown["answer"] = shown.answer.str.replace(" ", "␣", regex=False)
    whole = (
        table(shown, caption=f"the facts of {chosen}", links={"prompt": prompts}, most=ROWS)
        if len(found)
        else words("There are no facts of this relation.")
    )
    return html.Div(
        [
            html.H1("Facts to ask about"),
            words(said),
            html.Nav(relations, className="prompt", **{"aria-label": "relations"}),
            section(chosen or "Facts", whole),
            bar(),
        ]
    )


def _to_prompt(address: Address, prompt: str, answer: str) -> str:
    fresh = Address("/", tuple(pair for pair in address.options if pair[0] == "bos"))
    return fresh.to("/", prompt=prompt, answer=answer)


def list_facts(session: Session, relation: str) -> pd.DataFrame:
    """List a relation's facts: subject, prompt, answer, source line."""
    rows = [
        (row.subject, row.prompt, row.answer, row.where)
        for row in session.facts.rows
        if row.relation == relation
    ]
    table = pd.DataFrame(rows, columns=["subject", "prompt", "answer", "where"])
    return session.model.provenance(
        settings={"facts": session.facts.source, "relation": relation}
    ).note(table)


def gather(session: Session, address: Address, live: Live) -> Export:
    """Gather a relation's facts."""
    relation = address.text("relation", session.facts.rows[0].relation)
    found = list_facts(session, relation)
    python = (
        f"from ffnprobe.facts.formats import read_facts\n\nrows = read_facts({session.facts_file!r}).rows\n"
        f"print([row for row in rows if row.relation == {relation!r}])"
    )
    return Export("facts", as_result(found), {"facts": found}, Recipe(None, python))

"""The page of facts: choose a relation and a fact, and go to its prompt."""

from collections import Counter

import pandas as pd
from dash import html

from ffnprobe.results import as_result
from ffnprobe.views.explorer.blocks import Component, Look, link, section, table, words
from ffnprobe.views.explorer.desk import Desk
from ffnprobe.views.explorer.places import Place
from ffnprobe.views.explorer.sheets import Live, Sheet, bar
from ffnprobe.views.recipes import Recipe

ROWS = 1_000


def show(desk: Desk, place: Place, look: Look) -> Component:
    """Show the relations, and the facts of the one chosen."""
    counts = Counter(row.relation for row in desk.facts.rows)
    chosen = place.text("relation", next(iter(counts)))
    relations = [
        link(f"{relation or 'no relation'} ({many:,})", place.to("/facts", relation=relation),
             is_near=True, className="chip", **({"aria-current": "true"} if relation == chosen else {}))
        for relation, many in counts.items()
    ]  # fmt: skip
    said = f"{len(desk.facts.rows):,} facts of {desk.facts.source}. A prompt leads to what the model says after it, and why."
    found = list_facts(desk, chosen)
    prompts = [
        link(prompt, _to_prompt(place, prompt, answer))
        for prompt, answer in zip(found.prompt, found.answer, strict=True)
    ]
    shown = found[["prompt", "answer", "subject"]].copy()
    shown["answer"] = shown.answer.str.replace(" ", "␣", regex=False)
    whole = (
        table(shown, caption=f"the facts of {chosen}", links={"prompt": prompts}, most=ROWS)
        if len(found)
        else words("There are none.")
    )
    return html.Div(
        [
            html.H1("What is there to ask?"),
            words(said),
            html.Nav(relations, className="prompt", **{"aria-label": "relations"}),
            section(chosen or "Facts", whole),
            bar(),
        ]
    )


def _to_prompt(place: Place, prompt: str, answer: str) -> str:
    fresh = Place("/", tuple(pair for pair in place.options if pair[0] == "bos"))
    return fresh.to("/", prompt=prompt, answer=answer)


def list_facts(desk: Desk, relation: str) -> pd.DataFrame:
    """Table a relation's facts: subject, prompt, answer, where they were read."""
    rows = [
        (row.subject, row.prompt, row.answer, row.where)
        for row in desk.facts.rows
        if row.relation == relation
    ]
    table = pd.DataFrame(rows, columns=["subject", "prompt", "answer", "where"])
    return desk.model.provenance(settings={"facts": desk.facts.source, "relation": relation}).note(
        table
    )


def gather(desk: Desk, place: Place, live: Live) -> Sheet:
    """Gather a relation's facts."""
    relation = place.text("relation", desk.facts.rows[0].relation)
    found = list_facts(desk, relation)
    python = (
        f"from ffnprobe.facts.formats import read_facts\n\nrows = read_facts({desk.facts_file!r}).rows\n"
        f"print([row for row in rows if row.relation == {relation!r}])"
    )
    return Sheet("facts", as_result(found), {"facts": found}, Recipe(None, python))

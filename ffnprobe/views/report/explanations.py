"""An explanation as a page: the prediction, the parts of its logit, the evidence, neuron by neuron."""

from html import escape
from typing import Any

import pandas as pd

from ffnprobe.cards import tokens_html
from ffnprobe.corpora.contexts import (
    HEADS,
    Examples,
    examples,
    name_numbers,
    name_source,
    quote,
)
from ffnprobe.corpora.embedded import embedded_scan
from ffnprobe.evidence.explanation import Explanation
from ffnprobe.reading.cards import TITLES
from ffnprobe.reading.readings import Readings, read
from ffnprobe.tracing.score_drivers import Drivers, drivers
from ffnprobe.tracing.trace import Trace
from ffnprobe.views.plots import plot
from ffnprobe.views.report.blocks import (
    definitions,
    figure_html,
    section,
    table_block,
    words,
)
from ffnprobe.views.report.reproduce import reproduce
from ffnprobe.views.report.terms import MARKS, NEURONS, PROMPTS

TOKENS = 8  # on a card
EXAMPLES = 3  # of each list, on a card
SHOWN_TOKENS = 3  # in the table, which is as wide as the page


def explanation_sections(explanation: Explanation) -> list[str]:
    """Write an explanation's sections, in the order they are read."""
    return [
        _opening(explanation),
        _evidence(explanation),
        _neurons(explanation),
        section("What the model predicts next", figure_html(plot(explanation, "predictions"))),
        _account(explanation),
        _paths(explanation),
        _map(explanation),
        section("What the words mean", definitions(MARKS | NEURONS | PROMPTS)),
        *reproduce(explanation),
    ]


def _opening(explanation: Explanation) -> str:
    known = explanation.provenance
    said = f"{known.model}: {explanation.standing}."
    if known.versus:
        said += f" Its logit is {explanation.logit:.3f} higher."
    about = (
        "The feed-forward layers of the model consist of neurons. Each asks a question about the text so "
        "far. The better the text matches it, the more of its answer the neuron adds: a direction that "
        "makes some next tokens likelier and others less likely. This page shows which neurons pushed "
        "this token, and what happens without them."
    )
    verdict = words(" ".join(explanation.verdict)) if explanation.verdict else ""
    verdict += words(" ".join(explanation.remarks), soft=True) if explanation.remarks else ""
    drawn = ""
    if explanation.curve is not None and len(explanation.curve.table):
        drawn = figure_html(plot(explanation, "curve"))
    return f"{words(said)}{verdict}{_prompt(explanation)}{words(about)}{drawn}"


def _prompt(explanation: Explanation) -> str:
    """Colour the prompt's tokens by the effect of ablating the MLPs there."""
    if explanation.map is None:
        return f"<p class=prompt>{tokens_html(explanation.trace.tokens)}</p>"
    effects = explanation.position_effects
    note = (
        "Colour: what the answer loses without the feed-forward layers at a token, added up over "
        "layers (blue: they help, orange: they hinder)."
    )
    if None in effects:
        note += " Tokens without colour were not measured; `ffnprobe ablate-layers` measures all."
    tokens = tokens_html(explanation.trace.tokens, effects)
    return f"<p class=prompt>{tokens}</p>{words(note, soft=True)}"


def _account(explanation: Explanation) -> str:
    said = words(
        "The answer's logit is a sum: every neuron, the embeddings and the biases each add a number, "
        "directly or carried there by attention, and nothing is left out. The neurons listed come first."
    )
    return section("What makes up the answer's logit", said, figure_html(plot(explanation, "account")),
                   figure_html(plot(explanation, "layers")))  # fmt: skip


def _paths(explanation: Explanation) -> str:
    if not len(explanation.paths):
        return ""
    said = words(
        "What a neuron writes at an earlier token reaches the answer through attention heads. These are "
        "the strongest such paths: the token, the neuron, the head that carried most of it, the answer."
    )
    table = table_block(explanation.paths.drop(columns=["layer", "neuron"]), name="paths")
    return section("How it got there", said, figure_html(plot(explanation, "paths")), table)


def _map(explanation: Explanation) -> str:
    if explanation.map is None:
        return ""
    said = words(
        "All neurons of one layer are ablated at one token, and the rest of the model runs again. At the "
        "last token the answer is assembled. Large numbers at earlier tokens are where the model looks "
        "up what it knows about them."
    )
    return section(
        "Where the feed-forward layers matter", said, figure_html(plot(explanation, "map"))
    )


def _evidence(explanation: Explanation) -> str:
    said = words(
        "Three kinds of evidence, because each one alone can mislead: what the weights promote (z), what "
        "the neuron pushed here, and what ablating it costs. Click a column head to sort, a name to go "
        "to its card below."
    )
    # A label is a line of its own: the card has it.
    hidden = ["layer", "neuron", "position", "label", "label_f1"]
    shown = explanation.neurons.drop(columns=hidden, errors="ignore")
    for column in shown.columns[shown.columns.str.endswith("_tokens")]:
        shown[column] = shown[column].str.split(" ").str[:SHOWN_TOKENS].str.join(" ")
    links = [f"neuron-{row}" for row in range(len(shown))]
    parts = [said, table_block(shown, name="evidence", links=links)]
    if "effect" in explanation.neurons:
        parts.append(figure_html(plot(explanation, "evidence")))
    return section("The evidence", *parts)


def _neurons(explanation: Explanation) -> str:
    readings = read(explanation.trace.model, list(explanation.neurons.name))
    assert isinstance(readings, Readings)
    lists = readings.tokens(min(TOKENS, explanation.trace.model.config.vocab))
    scan = explanation.options.scan or embedded_scan(explanation.trace.model)
    cards = [
        _card(
            explanation.trace,
            row,
            number,
            lists[lists.name == row["name"]],
            str(explanation.provenance.answer),
            None if scan is None else examples(scan, row["name"]),
        )
        for number, row in enumerate(explanation.neurons.to_dict("records"))
    ]
    said = words("One card per neuron: click to open it.", soft=True)
    return section("The neurons, one by one", said, *cards)


def _card(
    trace: Trace, row: dict[Any, Any], number: int, lists: pd.DataFrame, answer: str,
    found: Examples | None,
) -> str:  # fmt: skip
    name, grade = row["name"], row["grade"]
    badge = f'<span class="grade grade-{grade[:1]}">{grade or "–"}</span>'
    tokens = escape(" ".join(row["answer_tokens"].split(" ")[:3]))
    label = (
        f" <small>{escape(row['label'])} (F1 {row['label_f1']:.2f})</small>"
        if row.get("label")
        else ""
    )
    head = f"<summary>{badge} <b>{name}</b> at {escape(row['token'])}: {tokens}{label}</summary>"
    said = (
        f"At {row['token']} (position {row['position']}) its activation is {row['activation']:.3f}"
    )
    if "mean_activation" in row:
        said += f"; on average it is {row['mean_activation']:.3f}"
    if "set_to" in row:
        said += f"; removed, it is set to {row['set_to']:.3f}"
    said += f". It pushed {answer} by {row['push']:+.3f} logits directly"
    said += f", by {row['push_through_attention']:+.3f} through attention"
    if row["through"]:
        said += f" (most by {row['through']})"
    if "effect" in row:
        said += f"; without it {answer} loses {row['effect']:.3f}"
    said += f". By its weights the token stands out by z = {row['z']:.2f}."
    if row["activation"] < 0:
        said += " The activation is negative: here the neuron adds the negative of its answer."
    over = trace.activations[row["layer"], :, row["neuron"]].tolist()
    text = f"<p class=prompt>{tokens_html(trace.tokens, over)}</p>"
    tables = "".join(
        f"<div><b>{escape(TITLES[str(side)])}</b><table>{_rows(part)}</table></div>"
        for side, part in lists.groupby("list", sort=False)
    )
    tables += _drivers(drivers(trace, name, position=row["position"]))
    quoted = "" if found is None else _quote(found)
    note = words("The text is coloured by the neuron's activation at each token.", soft=True)
    return f'<details id="neuron-{number}">{head}{words(said)}{text}{note}<div class="lists">{tables}</div>{quoted}</details>'


def _quote(found: Examples) -> str:
    """Write a neuron's examples over a corpus, a few of each list."""
    parts = [words(f"{found.title}; {found.provenance.describe()}", soft=True)]
    for side, listed in found.sides(EXAMPLES).items():
        lines = "".join(
            f"<li>{escape(quote(example))} <small>{name_numbers(example)} "
            f"{escape(name_source(example))}</small></li>"
            for example in listed
        )
        parts.append(f"<b>{HEADS[side]}</b><ul>{lines}</ul>" if lines else "")
    return "".join(parts)


def _drivers(found: Drivers) -> str:
    """List who asked: the strongest parts of the stream and earlier neurons, by their share in the score."""
    listed = []
    for side in filter(None, (found, found.gate)):
        of = "" if side.asks == "question" else f" of the {side.asks}"
        strongest = side.table.head(TOKENS)[["part", "drive"]].set_axis(["token", "value"], axis=1)
        listed.append((f"who asked{of}: parts of its score {side.score:+.3f}", strongest))
        if earlier := side.account.neurons.numel():
            neurons = side.top(min(TOKENS, earlier))[["name", "drive"]]
            listed.append(
                (f"earlier neurons that asked{of}", neurons.set_axis(["token", "value"], axis=1))
            )
    return "".join(
        f"<div><b>{escape(title)}</b><table>{_rows(part)}</table></div>" for title, part in listed
    )


def _rows(part: pd.DataFrame) -> str:
    return "".join(
        f"<tr><td class=token>{escape(token)}</td><td>{value:.3f}</td></tr>"
        for token, value in zip(part.token, part.value, strict=True)
    )

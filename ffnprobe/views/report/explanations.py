"""An explanation as a page: what was said, who carried it, the evidence, neuron by neuron."""

import math
from html import escape
from typing import Any

import pandas as pd

from ffnprobe.cards import tokens_html
from ffnprobe.cells import format_value
from ffnprobe.evidence.explanation import Explanation
from ffnprobe.reading.cards import TITLES
from ffnprobe.reading.readings import Readings, read
from ffnprobe.tracing.trace import Trace
from ffnprobe.views.plots import plot
from ffnprobe.views.report.blocks import (
    definitions,
    figure_html,
    section,
    table_block,
    words,
)
from ffnprobe.views.report.reproduce import reproduce_story
from ffnprobe.views.report.terms import MARKS, NEURONS, PROMPTS

TOKENS = 8


def story_sections(story: Explanation) -> list[str]:
    """Write an explanation's sections, in the order they are read."""
    return [
        _opening(story),
        section("What the model says next", figure_html(plot(story, "predictions"))),
        _account(story),
        _map(story),
        _evidence(story),
        _neurons(story),
        _together(story),
        section("What the words mean", definitions(MARKS | NEURONS | PROMPTS)),
        reproduce_story(story),
    ]


def _opening(story: Explanation) -> str:
    known, pushes = story.provenance, story.pushes
    chance = math.exp(pushes.log_probability)
    size = len(story.trace.model.vocab)
    said = (
        f"{known.model} has read the text below. For what comes next it ranks {known.answer} "
        f"{pushes.rank:,} of {size:,} tokens, with probability {format_value(chance)}."
    )
    if known.versus:
        said += f" This page is about why {known.answer} rather than {known.versus}: its logit is {pushes.logit:.3f} higher."
    about = (
        "The feed-forward layers of the model consist of neurons. Each asks a question of what the model "
        "has made of the text so far, and the more it finds what it looks for, the more it adds of its "
        "answer, a direction that makes some next tokens likelier and others less likely. This page "
        "shows which of them pushed this token, and what happens without them."
    )
    return f"{words(said)}{_prompt(story)}{words(about)}"


def _prompt(story: Explanation) -> str:
    """Colour the prompt's tokens by what the answer loses without the MLPs there."""
    if story.map is None:
        return f"<p class=prompt>{tokens_html(story.trace.tokens)}</p>"
    by_position = story.map.groupby("position").effect.sum().tolist()
    note = (
        "Colour: what the answer loses without the feed-forward layers at a token, added up over "
        "layers (blue: they help, orange: they hinder)."
    )
    tokens = tokens_html(story.trace.tokens, by_position)
    return f"<p class=prompt>{tokens}</p>{words(note, soft=True)}"


def _account(story: Explanation) -> str:
    said = words(
        "The answer's logit is a sum: every neuron, every attention head, the embedding and the biases "
        "each add a number, and nothing is left out. The neurons listed further down come first."
    )
    return section("Who carries the answer", said, figure_html(plot(story, "account")),
                   figure_html(plot(story, "layers")))  # fmt: skip


def _map(story: Explanation) -> str:
    if story.map is None:
        return ""
    said = words(
        "All neurons of one layer are removed at one token, and the model runs on. At the last token the "
        "answer is put together; large numbers at earlier tokens are where the model looks up what it "
        "knows about them."
    )
    return section("Where the feed-forward layers matter", said, figure_html(plot(story, "map")))


def _evidence(story: Explanation) -> str:
    said = words(
        "Three kinds of evidence stand side by side, since each misleads alone: what the weights promote "
        "(z), what the neuron pushed here, and what its removal costs. A click on a head sorts; names "
        "lead to the cards below."
    )
    shown = story.neurons.drop(columns=["layer", "neuron", "position"])
    links = [f"neuron-{row}" for row in range(len(shown))]
    parts = [said, table_block(shown, name="evidence", links=links)]
    if "effect" in story.neurons:
        parts.append(figure_html(plot(story, "evidence")))
    return section("The evidence", *parts)


def _neurons(story: Explanation) -> str:
    readings = read(story.trace.model, list(story.neurons.name))
    assert isinstance(readings, Readings)
    lists = readings.tokens(min(TOKENS, story.trace.model.config.vocab))
    cards = [
        _card(
            story.trace, row, number, lists[lists.name == row["name"]], str(story.provenance.answer)
        )
        for number, row in enumerate(story.neurons.to_dict("records"))
    ]
    said = words("One card a neuron: a click unfolds it.", soft=True)
    return section("The neurons, one by one", said, *cards)


def _card(trace: Trace, row: dict[Any, Any], number: int, lists: pd.DataFrame, answer: str) -> str:
    name, grade = row["name"], row["grade"]
    badge = f'<span class="grade grade-{grade}">{grade or "–"}</span>'
    tokens = escape(" ".join(row["answer_tokens"].split(" ")[:3]))
    head = f"<summary>{badge} <b>{name}</b> at {escape(row['token'])}: {tokens}</summary>"
    said = (
        f"At {row['token']} (position {row['position']}) its activation is {row['activation']:.3f}"
    )
    if "mean_activation" in row:
        said += f"; on average it is {row['mean_activation']:.3f}"
    said += f". It pushed {answer} by {row['push']:+.3f} logits directly"
    if "effect" in row:
        said += f"; without it {answer} loses {row['effect']:.3f}"
    said += f". By its weights the token stands out by z = {row['z']:.2f}."
    if row["activation"] < 0:
        said += " The activation is negative: here the neuron does the reverse of what its answer promotes."
    over = trace.activations[row["layer"], :, row["neuron"]].tolist()
    text = f"<p class=prompt>{tokens_html(trace.tokens, over)}</p>"
    tables = "".join(
        f"<div><b>{escape(TITLES[str(side)])}</b><table>{_rows(part)}</table></div>"
        for side, part in lists.groupby("list", sort=False)
    )
    note = words("The text is coloured by the neuron's activation at each token.", soft=True)
    return f'<details id="neuron-{number}">{head}{words(said)}{text}{note}<div class="lists">{tables}</div></details>'


def _rows(part: pd.DataFrame) -> str:
    return "".join(
        f"<tr><td class=token>{escape(token)}</td><td>{value:.3f}</td></tr>"
        for token, value in zip(part.token, part.value, strict=True)
    )


def _together(story: Explanation) -> str:
    if story.together is None:
        return ""
    said = words(
        "Removed at once, beside as many neurons drawn at random: if the listed ones carry the answer, it "
        "loses more without them than without the random ones."
    )
    table = table_block(story.together, name="together", searchable=False)
    return section("Without all of them at once", said, table)

"""Removal of all listed neurons at once, compared with neurons like them, here and on contrast prompts."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from ffnprobe.evidence.grades import draw_alike
from ffnprobe.evidence.query import Query
from ffnprobe.interventions.group_changes import sweep_changes
from ffnprobe.interventions.readout import AnswerValues, read_answer
from ffnprobe.names import NeuronId
from ffnprobe.tracing.path_tables import Source

if TYPE_CHECKING:
    import pandas as pd

DRAWS = 20


def read_sources(table: "pd.DataFrame") -> list[Source]:
    """Return a table's neurons, each with its position."""
    return [
        (NeuronId(layer, neuron), position)
        for layer, neuron, position in zip(table.layer, table.neuron, table.position, strict=True)
    ]


def draw_sources(
    query: Query, sources: Sequence[Source], generator: torch.Generator
) -> list[Source]:
    """Draw as many neurons like these: same positions, same layers, nearest activation sizes."""
    drawn: list[Source] = []
    for position in dict.fromkeys(there for _, there in sources):
        own = [name for name, there in sources if there == position]
        sizes = query.trace.activations[:, position].abs()
        for one in own:
            sizes[one.layer, one.neuron] = float("inf")
        for name in own:
            # One at a time, so that each listed neuron has one like itself; none twice.
            value = query.trace.activations[name.layer, position, name.neuron]
            sizes[name.layer, name.neuron] = value.abs()
            alike = draw_alike(sizes, [name], 1, generator=generator)
            for one in (name, *alike):
                sizes[one.layer, one.neuron] = float("inf")
            drawn += [(one, position) for one in alike]
    return drawn


def remove_together(query: Query, tables: "Sequence[pd.DataFrame]") -> "pd.DataFrame":
    """Table what removing the listed neurons at once does, compared with as many neurons like them.

    A block for the last position, one for the earlier ones, and one for all of them together, whose draws
    are those of the two. With contrast prompts each block says what the same removal costs their own
    answers, on average.
    """
    import pandas as pd

    every: list[list[list[Source]]] = []
    for number, block in enumerate(read_sources(table) for table in tables if len(table)):
        generator = torch.Generator().manual_seed(query.seed + 1 + number)
        drawn = (draw_sources(query, block, generator) for _ in range(DRAWS))
        every.append([group for group in (block, *drawn) if group])
    if len(every) > 1:
        every.append(
            [[one for group in pair for one in group] for pair in zip(*every, strict=False)]
        )
    rows: list[dict[str, object]] = []
    values = _remove_groups(query, [group for groups in every for group in groups])
    for groups in every:
        rows += _table_block(query, groups[0], values.part(slice(0, len(groups))))
        values = values.part(slice(len(groups), None))
    return pd.DataFrame(rows)


def _remove_groups(query: Query, groups: Sequence[Sequence[Source]]) -> AnswerValues:
    """Remove groups, each by itself; the log-probability is the answer's own, with a rival too."""
    if not groups:
        return AnswerValues(torch.zeros(0), torch.zeros(0))
    found = query.remove_groups(groups)
    if found.log_probability is not None:
        return found
    return AnswerValues(found.logit, query.remove_groups(groups, alone=True).log_probability)


def _table_block(
    query: Query, block: Sequence[Source], found: AnswerValues
) -> list[dict[str, object]]:
    """Table what a block's removal does, and those of the neurons like it."""
    trace, logs = query.trace, found.log_probability
    where = " ".join(
        trace.tokens[position] for position in sorted({position for _, position in block})
    )
    assert logs is not None
    chance = sum(piece.log_probability for piece in query.pieces)
    after = [math.exp(chance - nats) for nats in logs.tolist()]
    alike, many = found.logit[1:].double(), len(block)
    lines = [(f"the {many} neurons listed", float(found.logit[0]), math.exp(chance), after[0])]
    if len(alike):
        like = f"{many} neurons like them"
        lines += [
            (f"{like}, mean of {DRAWS} draws", float(alike.mean()), math.exp(chance), sum(after[1:]) / len(alike)),
            (f"{like}, worst of {DRAWS} draws", float(alike.max()), math.exp(chance), min(after[1:])),
        ]  # fmt: skip
    if (there := remove_there(query, [block])) is not None:
        lines.append((f"the {many} neurons listed, on contrast prompts, mean", *there))
    return [
        {"removed": what, "token": where, "effect": effect, "probability_before": before,
         "probability_after": probability}
        for what, effect, before, probability in lines
    ]  # fmt: skip


def remove_there(
    query: Query, groups: Sequence[Sequence[Source]]
) -> tuple[float, float, float] | None:
    """Return what the contrast prompts' own answers lose on average without a group of neurons.

    Neurons are set to the same values, at the aligned positions. Also their mean probability, before
    and after. None without contrast prompts.
    """
    if query.contrast is None:
        return None
    effects, before, after = [], [], []
    for number, other in enumerate(query.contrast.others):
        values = change_there(query, number, groups)
        if values is None or values.log_probability is None:
            continue
        chance = float(other.log_probabilities()[query.contrast.answers[number]])
        effects.append(float(values.logit[0]))
        before.append(math.exp(chance))
        after.append(math.exp(chance - float(values.log_probability[0])))
    if not effects:
        return None
    many = len(effects)
    return sum(effects) / many, sum(before) / many, sum(after) / many


def change_there(
    query: Query, number: int, groups: Sequence[Sequence[Source]]
) -> AnswerValues | None:
    """Make the same removals on one contrast prompt, at the aligned positions, and read its answer.

    A neuron at a position without a counterpart there is left as it is.
    """
    contrast = query.contrast
    assert contrast is not None
    other, counterparts = contrast.others[number], contrast.alignment.counterparts[number]
    changes = [
        [
            query.change(one, counterpart)
            for one in group
            if (counterpart := counterparts[one[1]]) is not None
        ]
        for group in groups
    ]
    if not any(changes):
        return None
    readout = read_answer(other, contrast.answers[number], convention=query.pieces[0].convention)
    return sweep_changes(readout, changes)


def measure_specific(query: Query, sources: Sequence[Source]) -> list[float] | None:
    """Return what contrast prompts' own answers lose on average without each neuron by itself."""
    if query.contrast is None or not sources:
        return None
    totals, counts = torch.zeros(len(sources)).double(), torch.zeros(len(sources)).double()
    for number in range(len(query.contrast.others)):
        values = change_there(query, number, [[source] for source in sources])
        counterparts = query.contrast.alignment.counterparts[number]
        has_one = torch.tensor([counterparts[position] is not None for _, position in sources])
        if values is not None:
            totals += values.logit.double() * has_one
        counts += has_one
    return (totals / counts.clamp(min=1)).tolist()

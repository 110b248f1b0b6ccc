"""Tables of facts: how much is known, who carries a relation, what facts share, what removal costs."""

import numpy as np
import plotly.graph_objects as go

import ffnprobe as fp
from ffnprobe.views.figures import draws, parts
from ffnprobe.views.theme import COLOURS, apply_theme, heat, plain


@draws("known", "Scores")
def plot_known(scores: "fp.Scores") -> go.Figure:
    """Draw the share of each relation's facts that are known."""
    shares = scores.table.groupby("relation", sort=False).known.agg(["mean", "size"])
    shares = shares.sort_values("mean", ascending=False, kind="stable")
    values, names = shares["mean"].tolist(), [str(name) for name in shares.index]
    rows = [f"{name} ({size:,})" for name, size in zip(names, shares["size"], strict=True)]
    hover = [f"{name}: known" for name in names]
    look = {"note": parts.say_model(scores.provenance), "x": "share known (rank 1)"}
    title = f"{scores.title}: {scores.share_known:.1%}"
    return parts.draw_bars(values, title, names=rows, hover=hover, **look)


@draws("neurons", "Relations")
def plot_carriers(relations: "fp.Relations") -> go.Figure:
    """Draw how far each relation's first neuron is beyond chance, and how many of its facts it pushes."""
    first = relations.neurons.drop_duplicates("relation")
    rows = [
        f"{row.relation}  {row.name} ({row.share:.0%} of its facts, {row.elsewhere:.1%} of others)"
        for row in first.itertuples()
    ]
    hover = [f"{row}, p = {p:.3g}; z" for row, p in zip(rows, first.p, strict=True)]
    beyond = int((first.p <= 0.05).sum())
    title = f"{beyond} of {len(first)} relations have a neuron of their own, beyond chance"
    return parts.draw_bars(
        first.z.tolist(), title, names=rows, hover=hover, note=parts.say_model(relations.provenance),
        x="z of the count",
    )  # fmt: skip


@draws("facts", "Overlap")
def plot_overlap(overlap: "fp.Overlap") -> go.Figure:
    """Draw facts against facts, ordered by relation: the share of their neurons two facts have in common."""
    relations = overlap.facts.relation.tolist()
    # Numbered, since two facts may have one prompt.
    told = enumerate(zip(relations, overlap.facts.prompt, strict=True), start=1)
    names = [f"{number} {relation}: {prompt}" for number, (relation, prompt) in told]
    values = overlap.values.copy()
    np.fill_diagonal(values, np.nan)  # a fact shares everything with itself
    figure = go.Figure(
        heat(values.tolist(), rows=names, columns=names, signed=False, digits=None, bar="shared")
    )
    starts = [n for n, name in enumerate(relations) if n == 0 or name != relations[n - 1]]
    middles = [(a + b) // 2 for a, b in zip(starts, [*starts[1:], len(names)], strict=True)]
    ticks = {"tickvals": middles, "ticktext": [plain(relations[n]) for n in starts]}
    within, between, random = overlap.table.overlap
    title = (
        f"Facts of one relation share {within:.1%} of their neurons, of two relations {between:.1%}; "
        f"random neurons {random:.2%}"
    )
    apply_theme(figure, title, note=parts.say_model(overlap.provenance), height=820)
    figure.update_xaxes(**ticks, tickangle=-60, showgrid=False)
    return figure.update_yaxes(**ticks, autorange="reversed", showgrid=False)


@draws("relations", "Overlap")
def plot_relation_overlap(overlap: "fp.Overlap") -> go.Figure:
    """Draw relations against relations: the mean share of neurons that a fact of each has in common."""
    table = overlap.relations
    names = list(dict.fromkeys([*table.relation, *table.other]))
    order = {name: number for number, name in enumerate(names)}
    values = np.full((len(names), len(names)), np.nan)
    for row in table.itertuples():
        one, two = order[row.relation], order[row.other]
        values[one, two] = values[two, one] = row.overlap
    figure = parts.draw_grid(values.tolist(), rows=names, columns=names, signed=False, bar="shared")
    apart = table[table.relation != table.other].sort_values("overlap", kind="stable")
    title = f"Facts of one relation share {overlap.table.overlap[0]:.1%} of their neurons"
    if len(apart):
        most = apart.iloc[-1]
        title += (
            f"; of two relations, {most.relation} and {most.other} the most: {most.overlap:.1%}"
        )
    return apply_theme(
        figure, title, xaxis_tickangle=-60, note=parts.say_model(overlap.provenance),
        height=120 + 26 * len(names),
    )  # fmt: skip


@draws("effects", "Specificity")
def plot_specificity(specificity: "fp.Specificity") -> go.Figure:
    """Draw what the relation's facts and the others lose, for its neurons and for random ones."""
    table = specificity.table[specificity.table.removed != "nothing"]
    figure = go.Figure()
    for order, (removed, rows) in enumerate(table.groupby("removed", sort=False)):
        figure.add_bar(
            x=[f"{plain(side)}, {part}" for side, part in zip(rows.facts_of, rows.half, strict=True)],
            y=rows.effect.tolist(), name=plain(str(removed)), marker_color=COLOURS[order],
            text=[f"{value:.3g}" for value in rows.effect], textposition="outside",
            hovertemplate="%{x}: %{y:.4g} logits<extra></extra>",
        )  # fmt: skip
    # What counts are the facts held out; a relation of one fact has none.
    mine = table[table.facts_of == specificity.relation]
    mine = mine[mine.half == mine.half.iloc[-1]]
    title = (
        f"Without {len(specificity.neurons)} of its neurons the facts of {specificity.relation} "
        f"{mine.half.iloc[0]} lose {mine.effect.iloc[0]:.2f} logits; without random ones {mine.effect.iloc[1]:.2f}"
    )
    return apply_theme(
        figure, title, note=parts.say_model(specificity.provenance), x="facts of",
        y="effect (logits above the mean)", barmode="group", legend=parts.BELOW,
    )  # fmt: skip

"""Tables of facts and edits of them: what is known, who carries a relation, what an edit changed."""

import math
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

import ffnprobe as fp
from ffnprobe.errors import OptionRefused
from ffnprobe.provenance import Provenance
from ffnprobe.views.figures import charts, draws
from ffnprobe.views.theme import BLUE, COLOURS, GREY, ORANGE, apply_theme, heat, plain

# Of more prompts than this whose first choice an edit changed, those that moved most are drawn.
MOST = 30
_LEGEND = {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom"}


@draws("known", "Scores")
def plot_known(scores: "fp.Scores") -> go.Figure:
    shares = scores.table.groupby("relation", sort=False).known.agg(["mean", "size"])
    shares = shares.sort_values("mean", ascending=False, kind="stable")
    return charts.draw_bars(
        shares["mean"].tolist(), f"{scores.title}: {scores.share_known:.1%}",
        names=[f"{row.Index} ({row.size:,})" for row in shares.itertuples()],
        hover=[f"{name}: known" for name in shares.index],
        note=charts.say_model(scores.provenance), x="share known (rank 1)",
    )  # fmt: skip


@draws("neurons", "Relations")
def plot_carriers(relations: "fp.Relations") -> go.Figure:
    """Draw how far each relation's first neuron is beyond chance, and how many of its facts it pushes."""
    first = relations.neurons.drop_duplicates("relation")
    names = [
        f"{row.relation}  {row.name} ({row.share:.0%} of its facts, {row.elsewhere:.1%} of others)"
        for row in first.itertuples()
    ]
    hover = [f"{name}, p = {p:.3g}; z" for name, p in zip(names, first.p, strict=True)]
    beyond = int((first.p <= 0.05).sum())
    title = f"{beyond} of {len(first)} relations have a neuron of their own, beyond chance"
    look = {"note": charts.say_model(relations.provenance), "x": "z of the count"}
    return charts.draw_bars(first.z.tolist(), title, names=names, hover=hover, **look)


@draws("facts", "Overlap")
def plot_overlap(overlap: "fp.Overlap") -> go.Figure:
    """Draw facts against facts, ordered by relation: the share of their neurons two facts have in common."""
    relations = overlap.facts.relation.tolist()
    # Numbered, since two facts may have one prompt.
    rows = enumerate(zip(relations, overlap.facts.prompt, strict=True), start=1)
    names = [f"{number} {relation}: {prompt}" for number, (relation, prompt) in rows]
    values = overlap.values.copy()
    np.fill_diagonal(values, np.nan)  # a fact shares everything with itself
    look: dict[str, Any] = {"signed": False, "digits": None, "bar": "shared"}
    figure = go.Figure(heat(values.tolist(), rows=names, columns=names, **look))
    starts = [n for n, name in enumerate(relations) if n == 0 or name != relations[n - 1]]
    middles = [(a + b) // 2 for a, b in zip(starts, [*starts[1:], len(names)], strict=True)]
    ticks = {"tickvals": middles, "ticktext": [plain(relations[n]) for n in starts]}
    within, between, random = overlap.table.overlap
    title = (
        f"Facts of one relation share {within:.1%} of their neurons, of two relations {between:.1%}; "
        f"random neurons {random:.2%}"
    )
    apply_theme(figure, title, note=charts.say_model(overlap.provenance), height=820)
    figure.update_xaxes(**ticks, tickangle=-60, showgrid=False)
    return figure.update_yaxes(**ticks, autorange="reversed", showgrid=False)


@draws("relations", "Overlap")
def plot_relation_overlap(overlap: "fp.Overlap") -> go.Figure:
    """Draw relations against relations: the mean share of neurons that a fact of each has in common."""
    table = overlap.relations
    names = list(dict.fromkeys([*table.relation, *table.other]))
    half = table.pivot(index="relation", columns="other", values="overlap")
    half = half.reindex(index=names, columns=names)
    values = half.fillna(half.T).to_numpy().tolist()
    figure = charts.draw_grid(values, rows=names, columns=names, signed=False, bar="shared")
    title = f"Facts of one relation share {overlap.table.overlap[0]:.1%} of their neurons"
    apart = table[table.relation != table.other].sort_values("overlap", kind="stable")
    if len(apart):
        most = apart.iloc[-1]
        title += (
            f"; of two relations, {most.relation} and {most.other} the most: {most.overlap:.1%}"
        )
    return apply_theme(
        figure, title, xaxis_tickangle=-60, note=charts.say_model(overlap.provenance),
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
    own = table[table.facts_of == specificity.relation]
    own = own[own.half == own.half.iloc[-1]]
    title = (
        f"Without {len(specificity.neurons)} of its neurons the facts of {specificity.relation} "
        f"{own.half.iloc[0]} lose {own.effect.iloc[0]:.2f} logits; without random ones {own.effect.iloc[1]:.2f}"
    )
    return apply_theme(
        figure, title, note=charts.say_model(specificity.provenance), x="facts of",
        y="effect (logits above the mean)", barmode="group", legend=charts.BELOW,
    )  # fmt: skip


@draws("measures", "Certificate")
def plot_measures(certificate: "fp.Certificate") -> go.Figure:
    """Draw each measure of the certificate, before the edit and after it."""
    table = certificate.table
    table = table[~table.after.map(math.isnan)]
    names = [f"{row.measure} ({row.cases:,})" for row in table.itertuples()]
    title = certificate.title[:1].upper() + certificate.title[1:]
    note = _say_edit(certificate.provenance)
    return _draw_changes(table.before, table.after, names, title, digits=3, note=note, x="share")


@draws("changed", "Certificate")
def plot_changed(certificate: "fp.Certificate") -> go.Figure:
    """Draw the probability of the true answer before and after, for prompts whose first choice changed."""
    changed = certificate.changed
    if not len(changed):
        raise OptionRefused("no other prompt changed: there is nothing to draw.")
    moved = (changed.probability_after - changed.probability_before).abs()
    table = changed.loc[moved.sort_values(ascending=False, kind="stable").index[:MOST]]
    names = [f"{r.prompt}  {r.said_before} → {r.said_after}" for r in table.itertuples()]
    shown = f", the {MOST} that moved most" if len(changed) > MOST else ""
    return _draw_changes(
        table.probability_before, table.probability_after, names,
        f"{len(changed):,} of {certificate.asked:,} other prompts have another first choice{shown}",
        note=_say_edit(certificate.provenance), x="probability of the table's answer",
    )  # fmt: skip


def _draw_changes(
    before: pd.Series, after: pd.Series, names: charts.Texts, title: str, *, digits: int = 2, **look: Any
) -> go.Figure:  # fmt: skip
    """Draw pairs of values as a line from a hollow mark to a full one."""
    figure, rows = go.Figure(), list(range(len(names)))
    for row, ends in enumerate(zip(before, after, strict=True)):
        figure.add_scatter(x=list(ends), y=[row, row], mode="lines", showlegend=False,
                           line={"color": GREY, "width": 2}, hoverinfo="skip")  # fmt: skip
    for name, values, mode, symbol, side in (
        ("before", before, "markers", "circle-open", "top center"),
        ("after", after, "markers+text", "circle", "middle right"),
    ):
        figure.add_scatter(
            x=values.tolist(), y=rows, name=name, mode=mode,
            marker={"color": BLUE, "symbol": symbol, "size": 11, "line": {"width": 2, "color": BLUE}},
            text=[f"{value:.{digits}f}" for value in values], textposition=side, cliponaxis=False,
            hovertemplate=f"{name}: %{{x:.4g}}<extra></extra>",
        )  # fmt: skip
    charts.label(figure.update_yaxes, names, autorange="reversed")
    return apply_theme(
        figure, title, height=charts.height_of(len(names)) + 40, legend=_LEGEND,
        xaxis_range=[-0.06, 1.14], **look,
    )  # fmt: skip


@draws("layers", "Edited")
def plot_change(edited: "fp.Edited") -> go.Figure:
    """Draw how much of W_down's norm was added in each layer, and the effects a layer was chosen by."""
    shares = edited.norms.set_index("layer").share_of_weights
    layers = [f"L{layer}" for layer in range(edited.original.config.layers)]
    values = [float(shares.get(layer, 0.0)) for layer in range(len(layers))]
    bars = {"name": "norm of the change / norm of W_down", "marker_color": BLUE}
    figure = go.Figure(go.Bar(x=layers, y=values, **bars))
    right: dict[str, Any] = {}
    if edited.effects is not None:
        figure.add_scatter(
            x=layers, y=edited.effects.tolist(), yaxis="y2", mode="lines+markers",
            name="effect of the layer's MLP at the subject's last token, in logits (right)",
            line={"color": ORANGE, "dash": "dash"}, marker={"symbol": "diamond", "size": 8},
        )  # fmt: skip
        right["yaxis2"] = {
            "overlaying": "y", "side": "right", "showgrid": False, "automargin": True,
            "title": {"text": "effect in logits"}, "tickformat": ".2f",
        }  # fmt: skip
    most = f"{100 * max(values):.3g} % of W_down's norm in L{values.index(max(values))}"
    title = f"The edit changed {len(shares)} of {len(layers)} layers: {most}"
    return apply_theme(
        figure, title, note=_say_edit(edited.provenance), height=420, legend=_LEGEND,
        xaxis_type="category", yaxis_title_text="share of norm", **right,
    )  # fmt: skip


draws("layers", "Certificate")(lambda certificate: plot_change(certificate.edited))


def _say_edit(provenance: Provenance) -> str:
    """Say which model was edited, how, and over which facts it was asked."""
    settings = provenance.settings
    layers = ", ".join(f"L{layer}" for layer in settings["layers"])  # type: ignore[union-attr]
    facts = f"; facts: {settings['facts']}" if isinstance(settings.get("facts"), str) else ""
    return plain(f"{provenance.model}, {settings['method']} in {layers}{facts}")

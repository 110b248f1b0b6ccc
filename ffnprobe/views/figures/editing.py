"""Edits: how well one holds, which other prompts changed, and where the weights did."""

import math

import plotly.graph_objects as go

import ffnprobe as fp
from ffnprobe.errors import OptionRefused
from ffnprobe.provenance import Provenance
from ffnprobe.views.figures import draws
from ffnprobe.views.figures.parts import height_of, label
from ffnprobe.views.theme import BLUE, GREY, ORANGE, apply_theme, plain

MOST = 30
_LEGEND = {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom"}


@draws("measures", "Certificate")
def plot_measures(certificate: "fp.Certificate") -> go.Figure:
    """Draw each measure of the certificate, before the edit and after it."""
    table = certificate.table
    table = table[~table.after.map(math.isnan)]
    figure = _before_after(table.before.tolist(), table.after.tolist(), digits=3)
    rows = [f"{row.measure} ({row.cases:,})" for row in table.itertuples()]
    label(figure.update_yaxes, rows, autorange="reversed")
    title = certificate.title[:1].upper() + certificate.title[1:]
    note = _note(certificate.provenance)
    apply_theme(figure, title, note=note, x="share", height=height_of(len(table)) + 40)
    return figure.update_xaxes(range=[-0.06, 1.14])


@draws("changed", "Certificate")
def plot_changed(certificate: "fp.Certificate") -> go.Figure:
    """Draw the probability of the true answer before and after, for prompts whose first choice changed."""
    changed = certificate.changed
    if not len(changed):
        raise OptionRefused("no other prompt changed: there is nothing to draw.")
    order = (changed.probability_after - changed.probability_before).abs()
    table = changed.loc[order.sort_values(ascending=False, kind="stable").index[:MOST]]
    figure = _before_after(table.probability_before.tolist(), table.probability_after.tolist())
    rows = [f"{r.prompt}  {r.said_before} → {r.said_after}" for r in table.itertuples()]
    label(figure.update_yaxes, rows, autorange="reversed")
    shown = f", the {MOST} that moved most" if len(changed) > MOST else ""
    title = (
        f"{len(changed):,} of {certificate.asked:,} other prompts have another first choice{shown}"
    )
    note = _note(certificate.provenance)
    height = height_of(len(table)) + 40
    apply_theme(figure, title, note=note, x="probability of the table's answer", height=height)
    return figure.update_xaxes(range=[-0.06, 1.14])


@draws("layers", "Certificate")
def plot_certified_change(certificate: "fp.Certificate") -> go.Figure:
    """Draw where the weights were changed."""
    return plot_change(certificate.edited)


@draws("layers", "Edited")
def plot_change(edited: "fp.Edited") -> go.Figure:
    """Draw how much of W_down's norm was added in each layer, and the effects a layer was chosen by."""
    norms = edited.norms.set_index("layer").share_of_weights
    layers = [f"L{layer}" for layer in range(edited.original.config.layers)]
    values = [float(norms.get(layer, 0.0)) for layer in range(len(layers))]
    figure = go.Figure()
    figure.add_bar(
        x=layers, y=values, name="norm of the change / norm of W_down", marker_color=BLUE
    )
    if edited.effects is not None:
        figure.add_scatter(
            x=layers, y=edited.effects.tolist(), yaxis="y2", mode="lines+markers",
            name="effect of the layer's MLP at the subject's last token, in logits (right)",
            line={"color": ORANGE, "dash": "dash"}, marker={"symbol": "diamond", "size": 8},
        )  # fmt: skip
        right = {"overlaying": "y", "side": "right", "showgrid": False, "automargin": True}
        figure.update_layout(yaxis2=right)
    figure.update_layout(legend=_LEGEND)
    figure.update_xaxes(type="category")
    most = f"{100 * max(values):.3g} % of W_down's norm in L{values.index(max(values))}"
    title = f"The edit changed {len(norms)} of {len(layers)} layers: {most}"
    apply_theme(figure, title, note=_note(edited.provenance), y="share of norm", height=420)
    if edited.effects is not None:
        figure.update_layout(yaxis2={"title": {"text": "effect in logits"}, "tickformat": ".2f"})
    return figure


def _before_after(before: list[float], after: list[float], *, digits: int = 2) -> go.Figure:
    """Draw pairs of values as a line from a hollow mark to a full one."""
    figure, rows = go.Figure(), list(range(len(before)))
    for row, ends in enumerate(zip(before, after, strict=True)):
        figure.add_scatter(x=list(ends), y=[row, row], mode="lines", showlegend=False,
                           line={"color": GREY, "width": 2}, hoverinfo="skip")  # fmt: skip
    for name, values, symbol, side in (
        ("before", before, "circle-open", "top center"), ("after", after, "circle", "middle right"),
    ):  # fmt: skip
        figure.add_scatter(
            x=values, y=rows, name=name, mode="markers+text" if name == "after" else "markers",
            marker={"color": BLUE, "symbol": symbol, "size": 11, "line": {"width": 2, "color": BLUE}},
            text=[f"{value:.{digits}f}" for value in values], textposition=side, cliponaxis=False,
            hovertemplate=f"{name}: %{{x:.4g}}<extra></extra>",
        )  # fmt: skip
    return figure.update_layout(legend=_LEGEND)


def _note(provenance: Provenance) -> str:
    """Say which model was edited, how, and over which facts it was asked."""
    known = provenance.settings
    layers = ", ".join(f"L{layer}" for layer in known["layers"])  # type: ignore[union-attr]
    facts = f"; facts: {known['facts']}" if isinstance(known.get("facts"), str) else ""
    return plain(f"{provenance.model}, {known['method']} in {layers}{facts}")

"""Edits: how well one holds, which other prompts changed, and where the weights did."""

import math
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

import ffnprobe as fp
from ffnprobe.errors import OptionRefused
from ffnprobe.provenance import Provenance
from ffnprobe.views.figures import draws, parts
from ffnprobe.views.theme import BLUE, GREY, ORANGE, apply_theme, plain

MOST = 30
_LEGEND = {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom"}


@draws("measures", "Certificate")
def plot_measures(certificate: "fp.Certificate") -> go.Figure:
    """Draw each measure of the certificate, before the edit and after it."""
    table = certificate.table
    table = table[~table.after.map(math.isnan)]
    rows = [f"{row.measure} ({row.cases:,})" for row in table.itertuples()]
    title = certificate.title[:1].upper() + certificate.title[1:]
    ends = table.before.tolist(), table.after.tolist()
    return _before_after(
        *ends, rows, title, note=_note(certificate.provenance), x="share", digits=3
    )


@draws("changed", "Certificate")
def plot_changed(certificate: "fp.Certificate") -> go.Figure:
    """Draw the probability of the true answer before and after, for prompts whose first choice changed."""
    changed = certificate.changed
    if not len(changed):
        raise OptionRefused("no other prompt changed: there is nothing to draw.")
    order = (changed.probability_after - changed.probability_before).abs()
    table = changed.loc[order.sort_values(ascending=False, kind="stable").index[:MOST]]
    rows = [f"{r.prompt}  {r.said_before} → {r.said_after}" for r in table.itertuples()]
    shown = f", the {MOST} that moved most" if len(changed) > MOST else ""
    title = (
        f"{len(changed):,} of {certificate.asked:,} other prompts have another first choice{shown}"
    )
    ends = table.probability_before.tolist(), table.probability_after.tolist()
    note, x = _note(certificate.provenance), "probability of the table's answer"
    return _before_after(*ends, rows, title, note=note, x=x)


@draws("layers", "Edited")
def plot_change(edited: "fp.Edited") -> go.Figure:
    """Draw how much of W_down's norm was added in each layer, and the effects a layer was chosen by."""
    norms = edited.norms.set_index("layer").share_of_weights
    layers = [f"L{layer}" for layer in range(edited.original.config.layers)]
    values = [float(norms.get(layer, 0.0)) for layer in range(len(layers))]
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
    title = f"The edit changed {len(norms)} of {len(layers)} layers: {most}"
    return apply_theme(
        figure, title, note=_note(edited.provenance), height=420, legend=_LEGEND,
        xaxis_type="category", yaxis_title_text="share of norm", **right,
    )  # fmt: skip


draws("layers", "Certificate")(lambda certificate: plot_change(certificate.edited))


def _before_after(
    before: list[float], after: list[float], names: Sequence[str], title: str, *, digits: int = 2,
    **look: Any,
) -> go.Figure:  # fmt: skip
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
    parts.label(figure.update_yaxes, names, autorange="reversed")
    look |= {
        "height": parts.height_of(len(names)) + 40,
        "legend": _LEGEND,
        "xaxis_range": [-0.06, 1.14],
    }
    return apply_theme(figure, title, **look)


def _note(provenance: Provenance) -> str:
    """Say which model was edited, how, and over which facts it was asked."""
    known = provenance.settings
    layers = ", ".join(f"L{layer}" for layer in known["layers"])  # type: ignore[union-attr]
    facts = f"; facts: {known['facts']}" if isinstance(known.get("facts"), str) else ""
    return plain(f"{provenance.model}, {known['method']} in {layers}{facts}")

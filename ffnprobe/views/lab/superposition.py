"""Figures of superposition: crowded directions, busy neurons, signals that share dimensions."""

from collections.abc import Mapping

import plotly.graph_objects as go
import torch
from plotly.subplots import make_subplots

from ffnprobe.lab.sparse import SparseModels
from ffnprobe.lab.superposition import Crowding, FactLoad
from ffnprobe.views.theme import apply_theme, heat, line_of


def plot_crowding(measured: Mapping[str, Crowding], *, note: str = "") -> go.Figure:
    """Draw the distribution of cosines of a layer's directions, compared with random directions."""
    figure = go.Figure()
    edges = torch.linspace(-1, 1, 101, dtype=torch.float64)
    for order, (name, one) in enumerate(measured.items()):
        density = torch.histogram(one.cosines, edges, density=True).hist
        label = f"{name}: effective dimension {one.effective_dimension:.0f}"
        figure.add_scatter(
            x=((edges[:-1] + edges[1:]) / 2).tolist(),
            y=density.clamp(min=1e-5).tolist(),
            name=label,
            line=line_of(order),
        )
    figure.update_yaxes(type="log", range=[-4, 1.2], exponentformat="power", dtick=1)
    figure.update_layout(legend={"x": 0.99, "y": 0.98, "xanchor": "right"})
    largest = {name: one.cosines.max().item() for name, one in measured.items()}
    title = (
        f"Answers reach cosines of {largest['answers']:.2f} where random ones stop at "
        f"{largest['random']:.2f}: they share directions more than chance would"
        if largest["answers"] > largest["random"]
        else "Answers are not closer to one another than random directions"
    )
    return apply_theme(
        figure, title, note=note, x="cosine of two neurons' directions", y="density (log)"
    )


def plot_fact_load(load: FactLoad, *, note: str = "") -> go.Figure:
    """Draw in how many known facts each neuron takes part, busiest first."""
    figure = go.Figure()
    for layer, counts in enumerate(load.counts):
        order = counts.sort(descending=True).values
        order = order[order > 0]
        figure.add_scatter(
            x=list(range(1, len(order) + 1)),
            y=order.tolist(),
            name=f"L{layer}",
            mode="lines",
            line=line_of(layer),
        )
    figure.update_xaxes(type="log", dtick=1)
    figure.update_yaxes(type="log", dtick=1)
    busiest, taking = int(load.counts.max()), int((load.counts > 0).sum())
    title = (
        f"{taking:,} neurons are among the {load.k} hardest pushers of some of {load.known:,} known "
        f"facts; one is in {busiest:,} of them"
    )
    return apply_theme(
        figure, title, note=note, x="neurons of a layer, busiest first (log)", y="facts (log)"
    )


def plot_sparse(models: SparseModels, *, note: str = "") -> go.Figure:
    """Draw WᵀW of the model at each density: the diagonal is what is kept, the rest interference."""
    table = models.table()
    titles = [
        f"on {density:.0%}: {kept} kept"
        for density, kept in zip(table["density"], table["signals_kept"], strict=True)
    ]
    figure = make_subplots(
        cols=len(titles), subplot_titles=titles, shared_yaxes=True, horizontal_spacing=0.02
    )
    names = [str(signal) for signal in range(models.weights.shape[1])]
    for column, overlap in enumerate(models.overlaps, 1):
        bar = "overlap" if column == len(titles) else None
        figure.add_trace(
            heat(overlap.tolist(), rows=names, columns=names, limit=1.0, digits=None, bar=bar),
            1,
            column,
        )
    figure.update_yaxes(autorange="reversed", title_text="signal", col=1)
    first, last = table.iloc[0], table.iloc[-1]
    title = (
        f"In {first.dimensions:.0f} dimensions {first.signals_kept:.0f} signals are kept if always on, "
        f"{last.signals_kept:.0f} if on {last.density:.0%} of the time"
    )
    return apply_theme(figure, title, note=note, height=330, width=1180, x="signal")

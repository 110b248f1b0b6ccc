"""Figures of a match: where twins are, and how far correlations are above chance."""

import plotly.graph_objects as go

from ffnprobe.reading.matches import Match
from ffnprobe.views.figures.grids import add_grid, label, new_grids
from ffnprobe.views.figures.surveys import box_layers
from ffnprobe.views.theme import BLUE, GREY, apply_theme


def plot_layers(match: Match) -> go.Figure:
    """Draw in which layer of the other model the twins of each layer are."""
    neurons = match.neurons
    twins = neurons[neurons.is_twin]
    rows, columns = (int(neurons[name].max()) + 1 for name in ("layer", "twin_layer"))
    counts = [[0] * columns for _ in range(rows)]
    for layer, twin in zip(twins.layer, twins.twin_layer, strict=True):
        counts[layer][twin] += 1
    figure = new_grids()
    names = [f"L{layer}" for layer in range(rows)]
    add_grid(figure, counts, rows=names, columns=[f"L{n}" for n in range(columns)], signed=False,
             digits=0, bar="twins")  # fmt: skip
    label(figure.update_xaxes, [f"L{n}" for n in range(columns)])
    figure.update_traces(hovertemplate="L%{y} → L%{x}: %{z} twins<extra></extra>")
    same = int((twins.layer == twins.twin_layer).sum())
    title = f"{match.title}, {same:,} of them in the same layer"
    return apply_theme(
        figure, title, note=match.caption, x=f"layer of {match.other}", y="layer",
        height=max(320, 150 + 34 * rows),
    )  # fmt: skip


def plot_correlations(match: Match) -> go.Figure:
    """Draw each layer's best correlations beside those with the random control."""
    neurons = match.neurons
    figure = go.Figure()
    figure.add_trace(box_layers(neurons, "correlation", BLUE, f"best neuron of {match.other}"))
    figure.add_trace(box_layers(neurons, "control", GREY, "best of as many random answers"))
    above = float((neurons.correlation.abs() > neurons.control.abs()).mean())
    title = f"{above:.0%} of the neurons are more like a neuron of {match.other} than like any random answer"
    figure.update_layout(boxmode="group", legend={"orientation": "h", "y": -0.16})
    note = f"{match.provenance.model}; boxes are quartiles; {match.caption}"
    return apply_theme(figure, title, note=note, x="layer", y="correlation over the vocabulary")

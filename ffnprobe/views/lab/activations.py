"""Figures of activation functions, and of a model's scores."""

from collections.abc import Sequence

import plotly.graph_objects as go
import torch
from plotly.subplots import make_subplots

from ffnprobe.lab.activations import CURVES, find_bump, find_curve, find_slope
from ffnprobe.lab.tallies import EDGES, Tally
from ffnprobe.views.theme import BLACK, DIVERGING, GREY, SHADE, apply_theme, line_of

LABELS = {
    "relu": "ReLU", "gelu": "GELU (erf)", "gelu_new": "GELU (tanh)", "swish": "Swish",
    "swiglu": "SwiGLU",
}  # fmt: skip


def plot_curves() -> go.Figure:
    """Draw each activation function and its derivative, minima marked, Swish's bump shaded."""
    figure = make_subplots(cols=2, subplot_titles=["value", "derivative"], horizontal_spacing=0.09)
    points = torch.linspace(-5, 3, 801, dtype=torch.float64)
    for order, name in enumerate(CURVES):
        for column, values in enumerate((find_curve(name)(points), find_slope(name, points)), 1):
            figure.add_trace(
                go.Scatter(
                    x=points.tolist(), y=values.tolist(), name=LABELS[name], line=line_of(order), legendgroup=name,
                    showlegend=column == 1,
                ), 1, column,
            )  # fmt: skip
    for name in ("gelu_new", "swish"):
        bump = find_bump(name)
        assert bump is not None
        figure.add_trace(
            go.Scatter(
                x=[bump.at], y=[bump.depth], mode="markers", showlegend=False,
                marker={"size": 10, "color": BLACK, "symbol": "circle-open"},
            ), 1, 1,
        )  # fmt: skip
        below = name == "swish"
        figure.add_annotation(
            x=bump.at, y=bump.depth, text=f"{LABELS[name]}: {bump.depth:.6f} at {bump.at:.6f}",
            ax=-60 if below else -100, ay=42 if below else -60, row=1, col=1,
        )  # fmt: skip
    swish = find_bump("swish")
    assert swish is not None
    figure.add_vrect(x0=swish.low, x1=swish.high, fillcolor=SHADE, line_width=0, row=1, col=1)
    figure.update_xaxes(range=[-5, 3])
    figure.update_yaxes(range=[-0.7, 2.2], row=1, col=1)
    figure.update_layout(legend={"x": 0.02, "y": 0.98})
    title = "The smooth activations dip below zero before they rise, and their slope overshoots 1; ReLU does neither"
    note = "Shaded: Swish's bump, where it is at least half as deep as at its minimum."
    return apply_theme(figure, title, note=note, x="score")


def plot_gate_surface() -> go.Figure:
    """Draw SwiGLU over its two inputs."""
    gates, scores = (torch.linspace(low, high, 81) for low, high in ((-5, 3), (-3, 3)))
    values = find_curve("swiglu")(gates)[None, :] * scores[:, None]
    most = values.abs().max().item()
    figure = go.Figure(
        go.Surface(
            x=gates.tolist(), y=scores.tolist(), z=values.tolist(), colorscale=DIVERGING,
            cmin=-most, cmax=most, colorbar={"title": {"text": "activation"}, "len": 0.7},
            lighting={"ambient": 1.0, "diffuse": 0.0, "specular": 0.0},
            contours={axis: {"show": True, "color": GREY, "width": 1} for axis in ("x", "y")},
        )
    )  # fmt: skip
    axes = {"xaxis_title": "gate", "yaxis_title": "score", "zaxis_title": "activation"}
    view = {
        "aspectmode": "cube",
        "camera": {"eye": {"x": -1.1, "y": -1.5, "z": 0.6}, "center": {"z": -0.22}},
    }
    figure.update_layout(scene={**axes, **view})
    title = "SwiGLU: a closed gate shuts the score out, an open one passes it with its sign"
    note = "swish(gate) × score. Where the gate is below zero, in its bump, a score comes through weakly, with its sign flipped."
    return apply_theme(figure, title, note=note, height=560)


def plot_scores(tally: Tally, names: Sequence[str], *, note: str = "") -> go.Figure:
    """Draw the distribution of each layer's scores, with the bump of the activation shaded."""
    figure = go.Figure()
    middles = (EDGES[:-1] + EDGES[1:]) / 2
    for order, (name, density) in enumerate(zip(names, tally.density, strict=True)):
        shares = f"{tally.below_zero[order]:.0%} below 0"
        if tally.bump is not None:
            shares += f", {tally.in_bump[order]:.0%} in the bump"
        figure.add_scatter(
            x=middles.tolist(),
            y=density.tolist(),
            name=f"{name}: {shares}",
            line=line_of(order),
            mode="lines",
        )
    if tally.bump is not None:
        figure.add_vrect(x0=tally.bump.low, x1=tally.bump.high, fillcolor=SHADE, line_width=0)
    figure.add_vline(x=0, line_color=GREY)
    figure.update_xaxes(range=[-5, 4])
    figure.update_layout(legend={"x": 0.99, "y": 0.98, "xanchor": "right"})
    low, high = tally.below_zero.min(), tally.below_zero.max()
    title = f"Between {low:.0%} and {high:.0%} of a layer's scores are below zero"
    if tally.bump is not None:
        title += (
            f"; {tally.in_bump.min():.0%} to {tally.in_bump.max():.0%} fall in the bump (shaded)"
        )
    return apply_theme(figure, title, note=note, x="score", y="density")

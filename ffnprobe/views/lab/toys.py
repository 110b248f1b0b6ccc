"""Figures of toy FFNs: every stage, and the way from identity to full weights."""

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ffnprobe.lab.toy import ToyStages
from ffnprobe.views.theme import apply_theme, heat, line_of


def plot_toy_stages(stages: ToyStages, *, note: str = "") -> go.Figure:
    """Draw every stage of a toy FFN as a heatmap, all on one colour scale."""
    named = stages.named()
    figure = make_subplots(cols=len(named), subplot_titles=list(named), horizontal_spacing=0.06)
    limit = max(stage.abs().max().item() for stage in named.values())
    for column, (name, stage) in enumerate(named.items(), 1):
        rows, columns = (
            [f"row {i}" for i in range(stage.shape[0])],
            list(map(str, range(stage.shape[1]))),
        )
        bar = "value" if column == len(named) else None
        figure.add_trace(
            heat(stage.tolist(), rows=rows, columns=columns, limit=limit, digits=3, bar=bar),
            1,
            column,
        )
        neuron = "dimension" if name in ("input", "output") else "neuron"
        figure.update_xaxes(title_text=neuron, row=1, col=column)
    figure.update_yaxes(autorange="reversed")
    before, after = (int((stage < 0).sum()) for stage in (stages.scores, stages.activations))
    title = f"{before} of {stages.scores.numel()} scores are below zero; after the activation {after} are"
    return apply_theme(figure, title, note=note, height=280)


def plot_departure(table: pd.DataFrame, *, note: str = "") -> go.Figure:
    """Draw how far the output lies from the input as the weights leave the identity, both ways."""
    ways = list(table.groupby("way", sort=False))
    figure = make_subplots(
        cols=len(ways), shared_yaxes=True, x_title="how much of W − I is in the weights",
        subplot_titles=[str(way) for way, _ in ways], horizontal_spacing=0.05,
    )  # fmt: skip
    rows = [column for column in table.columns if column.startswith("row")]
    for column, (_, steps) in enumerate(ways, 1):
        for order, row in enumerate(rows):
            figure.add_trace(
                go.Scatter(
                    x=steps["step"], y=steps[row], name=row, mode="lines+markers",
                    line=line_of(order), showlegend=column == 1,
                ), 1, column,
            )  # fmt: skip
    figure.update_xaxes(type="category")
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title_text="distance of output from input", col=1)
    first, last = table[rows].iloc[0], table[rows].iloc[-1]
    moved = ", ".join(f"{row} from {first[row]:.2f} to {last[row]:.2f}" for row in rows)
    return apply_theme(
        figure, f"From identity to full weights the output leaves its input: {moved}", note=note
    )

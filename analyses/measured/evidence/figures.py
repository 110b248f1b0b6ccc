"""Flips here and on contrast prompts, by how many neurons are removed, one line a method."""

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ffnprobe.views.theme import apply_theme, line_of


def draw(table: pd.DataFrame, model: str, removed: str) -> go.Figure:
    """Draw the share of answers flipped and the falls, here on the left and there on the right."""
    figure = make_subplots(
        rows=2, cols=2, shared_xaxes=True, shared_yaxes="rows", vertical_spacing=0.08,
        subplot_titles=("this fact", "contrast prompts, their own answers", "", ""),
    )  # fmt: skip
    for order, (method, own) in enumerate(table.groupby("method", sort=False)):
        for row, what in enumerate(("flipped", "fall"), start=1):
            for column, where in enumerate(("", "_there"), start=1):
                figure.add_scatter(
                    x=own.k.tolist(), y=own[f"{removed}_{what}{where}"].tolist(), name=str(method),
                    mode="lines+markers", line=line_of(order), legendgroup=str(method),
                    showlegend=row == column == 1, row=row, col=column,
                )  # fmt: skip
    figure.update_xaxes(type="log", tickvals=sorted(set(table.k)), ticktext=sorted(set(table.k)))
    figure.update_xaxes(title="neurons removed", row=2)
    figure.update_yaxes(title="no longer first", tickformat=".0%", row=1, col=1)
    figure.update_yaxes(title="fall, in nats", row=2, col=1)
    most = int(table.facts.max())
    best = table[table.k == 20].sort_values(f"{removed}_flipped").iloc[-1]
    title = f"20 neurons of {best.method} flip {best[f'{removed}_flipped']:.0%} of {most} facts of {model}"
    note = f"removed: set to the {removed} mean; {most} known facts"
    return apply_theme(figure, title, note=note, height=620)

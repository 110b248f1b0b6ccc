"""Sequential edits: the score after so many, method by method."""

import pandas as pd
import plotly.graph_objects as go

from analyses.measured.editing.runs import METHODS
from ffnprobe.views.theme import apply_theme, line_of


def draw_sequence(table: pd.DataFrame, model: str) -> go.Figure:
    """Draw S of all edits so far against how many there are."""
    figure = go.Figure()
    for order, method in enumerate(METHODS):
        own = table[table.method == method]
        figure.add_scatter(
            x=own.edits.tolist(), y=own.score.tolist(), name=method, mode="lines+markers",
            line=line_of(order), marker={"size": 9},
        )  # fmt: skip
    last = table[table.edits == table.edits.max()].sort_values("score", ascending=False)
    ranking = " > ".join(f"{row.method} {100 * row.score:.0f}" for row in last.itertuples())
    title = f"After {int(table.edits.max())} edits in a row: {ranking}"
    figure.update_xaxes(type="log", tickvals=sorted(set(table.edits)))
    figure.update_yaxes(range=[-0.03, 1.03])
    note = f"{model}; S: harmonic mean of efficacy, paraphrases and neighbourhood over all edits so far"
    return apply_theme(figure, title, note=note, x="edits in a row", y="S", height=420)


def draw_alone(table: pd.DataFrame, model: str) -> go.Figure:
    """Draw efficacy, paraphrases, neighbourhood and S of single edits, method by method."""
    measures = ["efficacy", "paraphrases", "neighbourhood", "score"]
    figure = go.Figure()
    for order, row in enumerate(table.itertuples()):
        values = [getattr(row, name) for name in measures]
        figure.add_bar(
            x=measures, y=values, name=row.method, marker_color=line_of(order)["color"],
            text=[f"{100 * value:.0f}" for value in values], textposition="outside",
        )  # fmt: skip
    best = table.sort_values("score", ascending=False).iloc[0]
    title = f"One fact at a time: {best.method} has the highest score, S {100 * best.score:.1f}"
    figure.update_yaxes(range=[0, 1.12])
    return apply_theme(
        figure, title, note=f"{model}, {int(best.facts)} facts", y="share", height=420
    )

"""Figures of direct logit attribution: pushes by layer, by part, by neuron."""

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ffnprobe.evidence.explanation import Explanation
from ffnprobe.provenance import Provenance
from ffnprobe.tracing.pushes import Pushes
from ffnprobe.tracing.pushes_by_piece import PushesByPiece
from ffnprobe.views.figures.bars import bars, height_of, neuron_hovers, neuron_labels, room
from ffnprobe.views.figures.grids import label
from ffnprobe.views.figures.words import say
from ffnprobe.views.theme import BLACK, BLUE, GREY, ORANGE, VERMILLION, apply_theme, plain


def plot_layers(pushes: Pushes | PushesByPiece) -> go.Figure:
    """Draw each layer's pushes: neurons toward the answer above zero, against it below."""
    pieces = pushes.pieces
    shown = [str(piece.provenance.answer) for piece in pieces]
    several = len(pieces) > 1
    titles = [plain(f"toward {token}") for token in shown] if several else None
    figure = make_subplots(
        rows=len(pieces),
        shared_xaxes=True,
        subplot_titles=titles,
        vertical_spacing=0.25 / len(pieces),
    )
    for row, piece in enumerate(pieces, 1):
        table = piece.by_layer()
        layers = [f"L{layer}" for layer in table.layer]
        for column, name, colour in (
            ("toward", "neurons toward", BLUE),
            ("against", "neurons against", VERMILLION),
            ("attention", "attention", ORANGE),
        ):
            figure.add_trace(
                go.Bar(x=layers, y=table[column].tolist(), name=name, marker_color=colour,
                       offsetgroup="attention" if column == "attention" else "neurons",
                       showlegend=row == 1),
                row, 1,
            )  # fmt: skip
        figure.add_trace(
            go.Scatter(x=layers, y=table.push.tolist(), name="the layer's sum", mode="markers",
                       marker={"color": BLACK, "symbol": "diamond", "size": 10}, showlegend=row == 1),
            row, 1,
        )  # fmt: skip
    figure.update_layout(barmode="relative", legend={"orientation": "h", "y": -0.14})
    figure.update_xaxes(type="category")
    title = "; ".join(map(_strongest_layer, pieces))
    note = say(pushes.provenance)
    return apply_theme(
        figure,
        title[0].upper() + title[1:],
        note=note,
        y="push in logits",
        height=380 * len(pieces),
    )


def _strongest_layer(pushes: Pushes) -> str:
    sums = pushes.values.double().sum(-1)
    layer = int(sums.abs().argmax())
    way = "toward" if sums[layer] >= 0 else "away from"
    return f"the neurons of L{layer} push most, {way} {pushes.provenance.answer} ({float(sums[layer]):+.2f})"


def plot_account(pushes: Pushes) -> go.Figure:
    """Draw the account as a waterfall that ends at the model's logit."""
    inside = {
        "head": "attention",
        "attention bias": "attention",
        "neurons": "MLP",
        "MLP bias": "MLP",
    }
    table = pushes.by_part()
    steps: dict[str, float] = {}
    for part, kind, layer, push in zip(
        table.part, table.kind, table.layer, table.push.tolist(), strict=True
    ):
        name = f"L{layer} {inside[kind]}" if kind in inside else str(part)
        steps[name] = steps.get(name, 0.0) + push
    return _waterfall(steps, pushes.logit, pushes.provenance)


def plot_parts(explanation: Explanation) -> go.Figure:
    """Draw the parts of the answer's logit as a waterfall, the listed neurons first."""
    table: pd.DataFrame = explanation.parts
    steps = dict(zip(table.part[:-1], table.push[:-1].tolist(), strict=True))
    return _waterfall(steps, explanation.logit, explanation.provenance)


def _waterfall(steps: dict[str, float], logit: float, provenance: Provenance) -> go.Figure:
    names = [*steps, "the logit"]
    values = [*steps.values(), logit]
    figure = go.Figure(
        go.Waterfall(
            x=list(range(len(names))), y=values,
            measure=[*["relative"] * len(steps), "total"],
            text=[f"{round(value, 2) + 0.0:+.2f}" for value in values], textposition="outside", cliponaxis=False,
            increasing={"marker": {"color": BLUE}}, decreasing={"marker": {"color": VERMILLION}},
            totals={"marker": {"color": BLACK}}, connector={"line": {"color": GREY, "width": 1}},
            customdata=[plain(name) for name in names], showlegend=False,
            hovertemplate="%{customdata}: %{delta:+.4f}, up to there %{y:.4f}<extra></extra>",
        )
    )  # fmt: skip
    label(figure.update_xaxes, names)
    figure.update_xaxes(tickangle=-40 if len(names) > 6 else 0)
    most = max(steps, key=lambda name: abs(steps[name]))
    than = f" above {provenance.versus}" if provenance.versus else ""
    title = (
        f"The parts add up to {provenance.answer}'s logit, {logit:.2f}{than}; "
        f"the largest part: {most} ({steps[most]:+.2f})"
    )
    apply_theme(figure, title, note=say(provenance), y="logits", height=460)
    # Room for the first slanted name: plotly drops one that does not fit.
    return figure.update_layout(margin_l=120)


def plot_neurons(pushes: Pushes, *, top: int = 10) -> go.Figure:
    """Draw the neurons that pushed hardest toward the answer and away from it."""
    half = min(top, pushes.values.numel() // 2 or 1)
    table = pushes.top(half)
    if 2 * half <= pushes.values.numel():
        table = pd.concat([table, pushes.against(half)[::-1]], ignore_index=True)
    title = f"{table['name'].iloc[0]} pushes {pushes.provenance.answer} most, by {table.push[0]:+.3f} logits"
    return draw_neurons(table, "push", title, note=say(pushes.provenance), x="push in logits")


def draw_neurons(table: pd.DataFrame, column: str, title: str, *, note: str, x: str) -> go.Figure:
    """Draw a table of neurons as bars, named, with their answers' first tokens."""
    values = table[column].tolist()
    figure = go.Figure(bars(values, hover=neuron_hovers(table)))
    label(figure.update_yaxes, neuron_labels(table), autorange="reversed")
    apply_theme(figure, title, note=note, x=x, height=height_of(len(table)))
    return figure.update_xaxes(range=room(values))

"""Figures of predictions, plain or steered, and of one neuron over a whole prompt."""

import math
from typing import Any

import plotly.graph_objects as go

from ffnprobe.interventions.steering import Steering
from ffnprobe.names import NeuronId
from ffnprobe.tracing.trace import Trace
from ffnprobe.views.figures.bars import bars, height_of, room
from ffnprobe.views.figures.grids import add_grid, label, new_grids
from ffnprobe.views.figures.words import join_tokens
from ffnprobe.views.theme import BLUE, ORANGE, apply_theme, plain

TOKENS_A_LINE = 8


def plot_predictions(
    trace: Trace, *, top: int = 10, position: int = -1, temperature: float = 1.0
) -> go.Figure:
    """Draw the likeliest next tokens."""
    many, at = min(top, len(trace.model.vocab)), trace.at(position)
    table = trace.predictions(many, position=position, temperature=temperature)
    probabilities = table["probability"].tolist()
    hover = [f"{token}: logit {logit:.3f}," for token, logit in zip(table.token, table.logit, strict=True)]  # fmt: skip
    figure = go.Figure(bars(probabilities, hover=hover))
    label(figure.update_yaxes, list(table.token), autorange="reversed")
    title = f"{table.token[0]} comes next with probability {probabilities[0]:.3f}"
    note = f"{trace.model.name} after {join_tokens(trace.tokens[: at + 1])}"
    note += "" if temperature == 1.0 else f"; temperature {temperature:g}"
    apply_theme(figure, title, note=note, x="probability", height=height_of(len(table)))
    return figure.update_xaxes(range=room(probabilities))


def plot_steering(steering: Steering, *, top: int = 10) -> go.Figure:
    """Draw the next tokens' probabilities before and after neurons were changed."""
    table = steering.predictions(min(top, len(steering.before)))
    figure = go.Figure()
    heights = list(range(len(table)))
    for x, colour, name, symbol, size in (
        (table.probability_before, BLUE, "before", "circle-open", 16),
        (table.probability_after, ORANGE, "after", "diamond", 9),
    ):
        figure.add_scatter(
            x=x.tolist(), y=heights, mode="markers", name=name, text=[plain(t) for t in table.token],
            marker={"color": colour, "size": size, "symbol": symbol, "line": {"width": 2}},
            hovertemplate=f"%{{text}} {name}: %{{x:.4g}}<extra></extra>",
        )  # fmt: skip
    for height, row in zip(heights, table.itertuples(), strict=True):
        ends = {"x0": row.probability_before, "x1": row.probability_after}
        figure.add_shape(type="line", y0=height, y1=height, line_width=1, layer="below", **ends)
    label(figure.update_yaxes, list(table.token), autorange="reversed")
    first, then = (
        int(column.argmax()) for column in (table.probability_before, table.probability_after)
    )
    after = f"{table.probability_after.iloc[then]:.3f}"
    title = (
        f"{table.token[first]} stays first: {table.probability_before.iloc[first]:.3f} becomes {after}"
        if first == then
        else f"{table.token[first]} was first, now {table.token[then]} is ({after})"
    )
    note = f"{steering.provenance.describe()}; after {join_tokens(steering.trace.tokens)}"
    apply_theme(figure, title, note=note, x="probability", height=height_of(len(table)))
    return figure.update_xaxes(range=[-0.03, 1.03])


def plot_text(trace: Trace, neuron: str | NeuronId) -> go.Figure:
    """Draw a neuron's activation at every token, as text on colour."""
    name = trace.model.find_neuron(neuron)
    values = trace.activations[name.layer, :, name.neuron].tolist()
    width = min(TOKENS_A_LINE, len(values))
    lines = math.ceil(len(values) / width)
    blank = lines * width - len(values)
    grid = _fold([*values, *[math.nan] * blank], width)
    texts = _fold([*(plain(token) for token in trace.tokens), *[""] * blank], width)
    most = max(map(abs, values)) or 1.0
    figure = new_grids()
    rows = [str(line * width) for line in range(lines)]
    add_grid(figure, grid, rows=rows, limit=most, across="column")
    figure.update_traces(text=texts, texttemplate="%{text}", hoverongaps=False,
                         hovertemplate="%{text}: %{z:.4g}<extra></extra>")  # fmt: skip
    figure.update_xaxes(showticklabels=False, ticks="")
    peak = max(range(len(values)), key=values.__getitem__)
    title = f"{name} is most active at {trace.tokens[peak]} ({values[peak]:.3f})"
    note = f"{trace.model.name}; a cell is a token, its colour the activation there, from {-most:.3g} to {most:.3g}"
    return apply_theme(figure, title, note=note, y="position", height=110 + 46 * lines)


def _fold(cells: list[Any], width: int) -> list[list[Any]]:
    """Break a list into lines."""
    return [cells[start : start + width] for start in range(0, len(cells), width)]
